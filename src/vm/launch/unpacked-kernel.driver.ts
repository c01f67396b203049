// Kernels unpacked by the host for emulated VMs, which saves 1.7 s of a boot. Effects: reads and writes files.
//
// The unpacked bytes are those that were checked for the launch. Their file has no name, so it cannot be replaced, and
// a killed daemon leaves none.

import { constants as fsConstants } from 'node:fs'
import { open } from 'node:fs/promises'
import { promisify } from 'node:util'
import * as zlib from 'node:zlib'
import { toHex } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { createSerial } from '../../base/work/serial.ts'
import { hasPvhEntry, zstdPayload } from './bzimage.codec.ts'
import { type ImageFile, nativeHashes, openImageFile, readWhole } from './image-file.driver.ts'

/**
 * Number of kernels that are kept. Images change; all images of one build share a kernel. No share: kernels of the
 * operator's images.
 */
const keptMax = 4

/** Part of Bun, and of Node since 22.15, but missing in the types. Bun.zstdDecompress has no bound on its output. */
type Zstd = {
  readonly zstdDecompress: (
    bytes: Uint8Array,
    options: { readonly maxOutputLength: number },
    done: (error: Error | null, unpacked: Uint8Array) => void,
  ) => void
}
const decompress = promisify((zlib as unknown as Zstd).zstdDecompress)

/** open(2): an unnamed file in this directory that cannot be linked. Missing in the runtime's constants. */
const tmpfile = 0o20000000 | fsConstants.O_DIRECTORY
const unnamed = tmpfile | fsConstants.O_RDWR | fsConstants.O_EXCL

export class UnpackedKernels {
  readonly #directory: string
  /** Kernels by the SHA-256 of the bzImage. Null if the kernel must unpack itself. */
  readonly #kept = new Map<string, ImageFile | null>()
  /** Serialized, so that a kernel that several VMs wait for is unpacked once. */
  readonly #serial = createSerial()

  /** `directory`: any directory on the file system for the files. */
  constructor(directory: string) {
    this.#directory = directory
  }

  /**
   * Returns the kernel in `kernel` for QEMU to start directly; the caller disposes of it. Null if it must unpack
   * itself. Throws Fault image.invalid if its digest differs or it is damaged.
   */
  open(kernel: ImageFile, sha256: string): Promise<ImageFile | null> {
    return this.#serial.run(async () => {
      const known = this.#kept.get(sha256)
      const unpacked = known === undefined ? await this.#unpack(kernel, sha256) : known
      this.#keep(sha256, unpacked)
      return unpacked === null ? null : openImageFile(`/proc/self/fd/${unpacked.fd}`)
    })
  }

  #keep(sha256: string, unpacked: ImageFile | null): void {
    // Moved to the end, because the least recently used is removed first.
    this.#kept.delete(sha256)
    this.#kept.set(sha256, unpacked)
    for (const [old, file] of this.#kept) {
      if (this.#kept.size <= keptMax) break
      this.#kept.delete(old)
      file?.[Symbol.dispose]()
    }
  }

  async #unpack(kernel: ImageFile, sha256: string): Promise<ImageFile | null> {
    const file = await readWhole(kernel)
    if (toHex(nativeHashes.sha256(file)) !== sha256)
      throw new Fault('image.invalid', `${kernel.path} changed after it was checked`)
    const payload = zstdPayload(file)
    if (payload === null) return null
    const { offset, length, unpackedBytes } = payload
    const elf = await unpackedOf(file.subarray(offset, offset + length), unpackedBytes).catch((error: unknown) => {
      throw wrapFault(error, `unpack ${kernel.path}`, 'image.invalid')
    })
    return hasPvhEntry(elf) ? this.#write(elf) : null
  }

  async #write(bytes: Uint8Array): Promise<ImageFile> {
    try {
      await using file = await open(this.#directory, unnamed, 0o600)
      // QEMU reopens it as another user.
      await file.chmod(0o644)
      await file.writeFile(bytes)
      return openImageFile(`/proc/self/fd/${file.fd}`)
    } catch (error) {
      throw wrapFault(error, `write an unpacked kernel in ${this.#directory}`)
    }
  }
}

async function unpackedOf(payload: Uint8Array, sizeBytes: number): Promise<Uint8Array> {
  const unpacked = await decompress(payload, { maxOutputLength: sizeBytes })
  if (unpacked.length !== sizeBytes) throw new Error(`${unpacked.length} bytes, not ${sizeBytes}`)
  return unpacked
}
