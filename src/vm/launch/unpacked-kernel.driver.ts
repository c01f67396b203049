// Kernels unpacked by the host, for VMs that are emulated: a kernel that unpacks itself there takes 1.7 s of a boot. Effects: reads and
// writes files.
//
// What is unpacked are the bytes that the launch was checked with. The file that it goes to never has a name: nobody can put another in its place, and a
// daemon that is killed leaves none.

import { constants as fsConstants } from 'node:fs'
import { open } from 'node:fs/promises'
import { promisify } from 'node:util'
import * as zlib from 'node:zlib'
import { toHex } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { createSerial } from '../../base/work/serial.ts'
import { hasPvhEntry, zstdPayload } from './bzimage.codec.ts'
import { type ImageFile, nativeHashes, openImageFile, readWhole } from './image-file.driver.ts'

/** Images come and go, and all of one build have one kernel. */
const keptMax = 4

/** Of Bun, and of Node since 22.15; missing in the types. Unlike Bun.zstdDecompress it has a bound. */
type Zstd = {
  readonly zstdDecompress: (
    bytes: Uint8Array,
    options: { readonly maxOutputLength: number },
    done: (error: Error | null, unpacked: Uint8Array) => void,
  ) => void
}
const decompress = promisify((zlib as unknown as Zstd).zstdDecompress)

/** open(2): a file in this directory without a name, which gets none later. Missing in the runtime's constants. */
const tmpfile = 0o20000000 | fsConstants.O_DIRECTORY
const unnamed = tmpfile | fsConstants.O_RDWR | fsConstants.O_EXCL

export class UnpackedKernels {
  readonly #directory: string
  /** By the SHA-256 of the bzImage; null: that one has to unpack itself. */
  readonly #kept = new Map<string, ImageFile | null>()
  /** One after the other: a kernel that several VMs wait for is unpacked once. */
  readonly #serial = createSerial()

  /** On whose file system the files are. */
  constructor(directory: string) {
    this.#directory = directory
  }

  /**
   * The kernel in `kernel`, for QEMU to start directly; the caller disposes of it. Null: it has to unpack itself.
   * Fault image.invalid: it is not the one of this digest, or is damaged.
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
    // The one that was used last is the last to go.
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
      // QEMU opens it once more, as a user of its own.
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
