// The runtime's native hashes, and random access to a disk image, for the attestation library. Effects: one file.

import { type FileHandle, open } from 'node:fs/promises'
import type { Hash } from '../../attest/hash.ts'
import type { ByteSource } from '../../attest/verity/root.ts'
import { inputFault, unreadable, wrongFileRemedy } from '../../terminal/input-file.ts'

/** Replace the library's own hashes, which are written in JavaScript. */
export const nativeSha256: Hash = bytes => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
export const nativeSha384: Hash = bytes => new Uint8Array(Bun.CryptoHasher.hash('sha384', bytes))
const nativeSha512: Hash = bytes => new Uint8Array(Bun.CryptoHasher.hash('sha512', bytes))
export const nativeHashes = { sha256: nativeSha256, sha384: nativeSha384, sha512: nativeSha512 } as const

/** 4 TiB: larger than any image. Limits how long a huge sparse file can keep the command busy. */
export const imageBytesMax = 2 ** 42

export type ImageSource = ByteSource & AsyncDisposable

/**
 * Opens an image. Accepts only regular files: pipes have no offsets, and devices report no size. Throws InputFault,
 * also from `read`.
 */
export async function openImage(input: { path: string; param: string }): Promise<ImageSource> {
  let file: FileHandle
  try {
    file = await open(input.path, 'r')
  } catch (error) {
    throw unreadable(input, error)
  }
  const close = async () => await file.close()
  const stat = await file.stat()
  const isTooLarge = stat.size > imageBytesMax
  if (!stat.isFile() || isTooLarge) {
    await close()
    throw inputFault(
      input,
      isTooLarge ? `${stat.size} bytes are too many` : 'it is not a regular file',
      wrongFileRemedy,
    )
  }
  return {
    read: async (offset, length) => {
      try {
        return await readAt(file, offset, length)
      } catch (error) {
        throw unreadable(input, error)
      }
    },
    [Symbol.asyncDispose]: close,
  }
}

/** Returns fewer than `length` bytes only at the end of the file. A single read(2) may return fewer. */
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
