// Files that are passed to QEMU as open descriptors, and their digests. Effects: opens and reads files.
//
// Hashing and QEMU use one descriptor, so replacing the file in between has no effect. Only root could still write to
// the file itself.

import { type BigIntStats, closeSync, constants as fsConstants, fstatSync, openSync, read } from 'node:fs'
import { promisify } from 'node:util'
import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'

export type ImageFile = { readonly path: string; readonly fd: number; readonly [Symbol.dispose]: () => void }

/** Opens the file. Throws Fault image.invalid if it cannot be opened, or is not a regular file. */
export function openImageFile(path: string): ImageFile {
  let fd: number
  try {
    fd = openSync(path, fsConstants.O_RDONLY | fsConstants.O_NONBLOCK)
  } catch (error) {
    throw wrapFault(error, `open ${path}`, 'image.invalid')
  }
  if (!fstatSync(fd).isFile()) {
    closeSync(fd)
    throw new Fault('image.invalid', `${path} is not a regular file`)
  }
  return { path, fd, [Symbol.dispose]: () => closeSync(fd) }
}

/** Above the size of any firmware, kernel or initrd. */
const bootBytesMax = 1 << 30
/** Hashing it takes about a millisecond, during which the thread is blocked. */
const chunkBytes = 1 << 20
/** Time within which a file may change again without its times showing that. */
const settledMs = 2_000

const readAt = promisify(read)

/** The runtime's native hashes, because those of the library are written in JavaScript. */
export const nativeHashes = {
  sha256: (bytes: Uint8Array): Uint8Array => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes)),
  sha384: (bytes: Uint8Array): Uint8Array => new Uint8Array(Bun.CryptoHasher.hash('sha384', bytes)),
} as const

/** Reads the whole file. Throws Fault image.invalid if it is too large, unreadable, or changes in the meantime. */
export async function readWhole(file: ImageFile): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  await readChunks(file, bootBytesMax, chunk => void parts.push(chunk.slice()))
  return new Uint8Array(Buffer.concat(parts))
}

/** Digests of files that have not changed since they were hashed, by path. */
export class FileDigests {
  readonly #clock: Pick<Clock, 'nowMs'>
  readonly #sizeBytesMax: number
  readonly #known = new Map<string, { readonly version: string; readonly sha256: string }>()

  constructor(clock: Pick<Clock, 'nowMs'>, { sizeBytesMax = bootBytesMax }: { readonly sizeBytesMax?: number } = {}) {
    this.#clock = clock
    this.#sizeBytesMax = sizeBytesMax
  }

  /** Returns the SHA-256, hexadecimal. Throws Fault image.invalid. */
  async sha256(file: ImageFile): Promise<string> {
    const known = this.#known.get(file.path)
    if (known?.version === versionOf(file)) return known.sha256
    const hasher = new Bun.CryptoHasher('sha256')
    const stats = await readChunks(file, this.#sizeBytesMax, chunk => void hasher.update(chunk))
    const sha256 = toHex(new Uint8Array(hasher.digest()))
    // A time in the future means that the clock was set back. Its distance, in either direction, determines whether the
    // file counts as settled.
    const ageMs = Math.abs(this.#clock.nowMs() - Number(stats.ctimeMs))
    if (ageMs >= settledMs) this.#known.set(file.path, { version: versionText(stats), sha256 })
    return sha256
  }
}

async function readChunks(
  file: ImageFile,
  sizeBytesMax: number,
  take: (chunk: Uint8Array) => void,
): Promise<BigIntStats> {
  const before = fstatSync(file.fd, { bigint: true })
  const sizeBytes = Number(before.size)
  if (sizeBytes > sizeBytesMax) throw new Fault('image.invalid', `${file.path}: ${sizeBytes} bytes`)
  const buffer = new Uint8Array(Math.min(chunkBytes, sizeBytes))
  let at = 0
  try {
    while (at < sizeBytes) {
      const { bytesRead } = await readAt(file.fd, buffer, 0, Math.min(buffer.length, sizeBytes - at), at)
      if (bytesRead === 0) break
      take(buffer.subarray(0, bytesRead))
      at += bytesRead
    }
  } catch (error) {
    throw wrapFault(error, `read ${file.path}`, 'image.invalid')
  }
  if (at !== sizeBytes || versionOf(file) !== versionText(before)) {
    throw new Fault('image.invalid', `${file.path} changed while it was read`)
  }
  return before
}

function versionOf(file: ImageFile): string {
  return versionText(fstatSync(file.fd, { bigint: true }))
}

function versionText({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(':')
}
