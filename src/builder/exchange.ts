// The exchange disk carries the source in and the result out, each from byte 0. Effects: a block device.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { BuildFailure, refuseUnless } from './failure.ts'

const chunkBytes = 1024 * 1024

/** Checks the host's archive. Failure `internal` if it differs from the ordered one. */
export async function checkSource(device: string, expected: { sizeBytes: number; sha256: string }): Promise<void> {
  const file = await fs.promises.open(device, fs.constants.O_RDONLY)
  try {
    const sha256 = createHash('sha256')
    const chunk = new Uint8Array(chunkBytes)
    for (let at = 0; at < expected.sizeBytes; ) {
      const { bytesRead } = await file.read(chunk, 0, Math.min(chunk.length, expected.sizeBytes - at), at)
      refuseUnless(bytesRead > 0, 'internal', () => 'exchange disk: shorter than the source that the order names')
      sha256.update(chunk.subarray(0, bytesRead))
      at += bytesRead
    }
    const found = sha256.digest('hex')
    refuseUnless(
      found === expected.sha256,
      'internal',
      () => `exchange disk: SHA-256 ${found} is not that of the order`,
    )
  } finally {
    await file.close()
  }
}

/** Writes from byte 0 and syncs. Failures: `limit_exceeded` if it does not fit, and errors of the chunks. */
export async function writeResult(
  device: string,
  chunks: AsyncIterable<Uint8Array>,
): Promise<{ sizeBytes: number; sha256: string }> {
  const file = await fs.promises.open(device, fs.constants.O_WRONLY)
  try {
    const sha256 = createHash('sha256')
    let sizeBytes = 0
    for await (const chunk of chunks) {
      for (let at = 0; at < chunk.length; ) {
        const { bytesWritten } = await file.write(chunk, at, chunk.length - at, sizeBytes + at).catch(cause => {
          throw new BuildFailure(
            'limit_exceeded',
            'result: does not fit on the exchange disk; build fewer or smaller artifacts',
            { cause },
          )
        })
        at += bytesWritten
      }
      sha256.update(chunk)
      sizeBytes += chunk.length
    }
    await file.sync()
    return { sizeBytes, sha256: sha256.digest('hex') }
  } finally {
    await file.close()
  }
}
