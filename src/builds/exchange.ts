// Source and result on the exchange disk of a build VM, a host file that the guest also writes. Effects: files.
//
// Copies in slices, yielding to the event loop between them, and checks length and digest.

import { createHash } from 'node:crypto'
import { constants as fsConstants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { Fault, wrapFault } from '../base/fault.ts'
import { guardedFlags } from '../linux/files/regular.ts'

export type CopiedFile = { readonly sizeBytes: number; readonly sha256: string }

const sliceBytes = 1_048_576

/**
 * Writes the source from byte 0. Fault internal, also if the file differs from the accepted one or the disk is too
 * small.
 */
export async function writeSource(source: string, exchange: string, expected: CopiedFile): Promise<void> {
  try {
    await using from = await openRegular(source, fsConstants.O_RDONLY)
    await using to = await openRegular(exchange, fsConstants.O_RDWR)
    if ((await to.handle.stat()).size < expected.sizeBytes)
      throw new Fault('internal', 'the exchange disk is too small')
    const sha256 = await copy(from.handle, to.handle, expected.sizeBytes)
    if (sha256 !== expected.sha256) throw new Fault('internal', 'the source on disk differs from the accepted one')
    // QEMU may have opened the file bypassing the page cache.
    await to.handle.datasync()
  } catch (error) {
    throw wrapFault(error, 'copy the source to the exchange disk')
  }
}

/**
 * Copies the result to a new file, and syncs it. Fault internal, also if the result differs from the guest's report;
 * the file is removed then.
 */
export async function readResult(exchange: string, result: string, expected: CopiedFile): Promise<void> {
  try {
    await using from = await openRegular(exchange, fsConstants.O_RDONLY)
    if ((await from.handle.stat()).size < expected.sizeBytes) {
      throw new Fault('internal', 'the guest reports a result larger than its disk')
    }
    const { O_WRONLY, O_CREAT, O_TRUNC } = fsConstants
    await using to = await openRegular(result, O_WRONLY | O_CREAT | O_TRUNC)
    const sha256 = await copy(from.handle, to.handle, expected.sizeBytes)
    if (sha256 !== expected.sha256)
      throw new Fault('internal', 'the result on the disk has another digest than the guest reported')
    await to.handle.sync()
  } catch (error) {
    throw wrapFault(error, 'copy the result from the exchange disk')
  }
}

/** Copies from byte 0 to byte 0. Returns the SHA-256 in hexadecimal. */
async function copy(from: FileHandle, to: FileHandle, sizeBytes: number): Promise<string> {
  const hash = createHash('sha256')
  const buffer = Buffer.alloc(Math.min(sliceBytes, Math.max(1, sizeBytes)))
  for (let at = 0; at < sizeBytes; ) {
    const { bytesRead } = await from.read(buffer, 0, Math.min(buffer.length, sizeBytes - at), at)
    if (bytesRead === 0) throw new Fault('internal', `it ends after ${at} of ${sizeBytes} bytes`)
    const slice = buffer.subarray(0, bytesRead)
    hash.update(slice)
    for (let done = 0; done < bytesRead; ) {
      const { bytesWritten } = await to.write(slice, done, bytesRead - done, at + done)
      done += bytesWritten
    }
    at += bytesRead
  }
  return hash.digest('hex')
}

type OpenedFile = AsyncDisposable & { readonly handle: FileHandle }

async function openRegular(path: string, flags: number): Promise<OpenedFile> {
  const handle = await open(path, flags | guardedFlags, 0o600)
  const opened = { handle, [Symbol.asyncDispose]: () => handle.close() }
  if ((await handle.stat()).isFile()) return opened
  await handle.close()
  throw new Fault('internal', `${path} is not a regular file`)
}
