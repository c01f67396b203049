// A disk image as the attestation library reads one: any part of it, without holding the whole. Effects: reads one file.

import { type FileHandle, open } from 'node:fs/promises'
import type { ByteSource } from '../../attest/verity/root.ts'
import { Fault, messageOf } from '../../base/fault.ts'

/** 4 TiB. More than any image, and little enough that no sparse file keeps us busy for days. */
export const imageBytesMax = 2 ** 42

export type ImageSource = ByteSource & AsyncDisposable & { readonly sizeBytes: number }

/** A plain file only: pipes cannot be read from anywhere, and devices do not say how long they are. Fault invalid_request, also from `read`. */
export async function openImage({ path, param }: { path: string; param: string }): Promise<ImageSource> {
  const refuse = (reason: string) => new Fault('invalid_request', `${path}: ${reason}`, { param })
  let file: FileHandle
  try {
    file = await open(path, 'r')
  } catch (error) {
    throw refuse(messageOf(error))
  }
  const close = async () => await file.close()
  const stat = await file.stat()
  const fault = !stat.isFile() ? 'no plain file' : stat.size > imageBytesMax ? `${stat.size} bytes are too many` : null
  if (fault !== null) {
    await close()
    throw refuse(fault)
  }
  return {
    sizeBytes: stat.size,
    read: async (offset, length) => {
      try {
        return await readAt(file, offset, length)
      } catch (error) {
        throw refuse(messageOf(error))
      }
    },
    [Symbol.asyncDispose]: close,
  }
}

/** One read(2) may give less than was asked for before the end. */
async function readAt(file: FileHandle, offset: number, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length)
  let done = 0
  while (done < length) {
    const { bytesRead } = await file.read(bytes, done, length - done, offset + done)
    if (bytesRead === 0) return bytes.slice(0, done)
    done += bytesRead
  }
  return bytes
}
