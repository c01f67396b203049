// Digest of a file, which must be regular and not a link. Effects: reads it.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { refuseUnless } from './failure.ts'

export async function sha256Of(path: string): Promise<string> {
  return await digestOf('sha256', path)
}

/** Returns the digest in hexadecimal. */
export async function digestOf(algorithm: 'sha256' | 'sha512', path: string): Promise<string> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants
  const file = await fs.promises.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  const hash = createHash(algorithm)
  const chunk = new Uint8Array(1024 * 1024)
  try {
    refuseUnless((await file.stat()).isFile(), 'internal', () => `${path}: not a regular file`)
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null)
      if (bytesRead === 0) return hash.digest('hex')
      hash.update(chunk.subarray(0, bytesRead))
    }
  } finally {
    await file.close()
  }
}
