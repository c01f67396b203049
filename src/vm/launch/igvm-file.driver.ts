// IGVM files for launches on this host: made from the image or configured, with this host's ID block. Effects: reads
// and writes files.
//
// They are in the state directory, one per shape; QEMU opens them by descriptor and `strongroom igvm show` prints them.
// Only files that this process wrote are reused, and each launch is checked like any other.

import type { SignedId } from '../../attest/igvm/id-block-header.ts'
import { buildImageIgvm } from '../../attest/igvm/image.ts'
import { cmdlineBytes } from '../../attest/launch/kernel-hashes.ts'
import { present } from '../../base/assert.ts'
import { fromHex, toHex } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { createSerial } from '../../base/work/serial.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { signedIgvm } from './igvm.plan.ts'
import { type Image, isOfNamed } from './image.driver.ts'
import { type FileDigests, type ImageFile, nativeHashes, openImageFile, readWhole } from './image-file.driver.ts'

export type IgvmFilesDeps = {
  /** Created at the first launch. */
  readonly directory: string
  readonly files: FileDigests
  /** The configured file, only for the instance image. Null if that image's file is also made from the image. */
  readonly named: string | null
}

export type IgvmWanted = {
  readonly image: Image
  readonly kernel: ImageFile
  readonly initrd: ImageFile
  readonly vcpuType: string
  readonly vcpus: number
  /** The measurement that the file is signed for, hexadecimal. */
  readonly measurement: string
  readonly sign: () => Promise<SignedId>
}

/** The file for QEMU, and the SHA-256 of the reproducible file, which is the same without the ID block. */
export type IgvmToLaunch = { readonly file: ImageFile; readonly unsigned: string }

type Written = { readonly path: string; readonly unsigned: string; readonly sha256: string }

const { sha256, sha384 } = nativeHashes
/** No share: files of the operator's images. */
const writtenCountMax = 64

export class IgvmFiles {
  readonly #deps: IgvmFilesDeps
  readonly #written = new Map<string, Written>()
  /** Serialized, so that a file is opened before the next of its name is written. */
  readonly #serial = createSerial()

  constructor(deps: IgvmFilesDeps) {
    this.#deps = deps
  }

  /**
   * Opens the file; the caller disposes of it. Throws Fault image.invalid if no file can be made of these parts, or the
   * configured file is unusable.
   */
  open(wanted: IgvmWanted): Promise<IgvmToLaunch> {
    return this.#serial.run(() => this.#open(wanted))
  }

  async #open(wanted: IgvmWanted): Promise<IgvmToLaunch> {
    using source = openImageFile(this.#namedFor(wanted.image) ?? wanted.image.firmware)
    const key = await this.#keyOf(wanted, source)
    const known = this.#written.get(key)
    const kept = known === undefined ? null : await this.#kept(known)
    if (kept !== null) return kept
    const written = await this.#write(wanted, source)
    this.#written.set(key, written)
    for (const old of this.#written.keys()) {
      if (this.#written.size <= writtenCountMax) break
      this.#written.delete(old)
    }
    return { file: openImageFile(written.path), unsigned: written.unsigned }
  }

  /** Reopens a written file. Null if it was removed or has changed. */
  async #kept({ path, unsigned, sha256: expected }: Written): Promise<IgvmToLaunch | null> {
    using opened = new DisposableStack()
    try {
      const file = opened.use(openImageFile(path))
      if ((await this.#deps.files.sha256(file)) !== expected) return null
      opened.move()
      return { file, unsigned }
    } catch (error) {
      if (error instanceof Fault) return null
      throw error
    }
  }

  async #keyOf({ image, kernel, initrd, vcpuType, vcpus, measurement }: IgvmWanted, source: ImageFile) {
    const { files } = this.#deps
    const digests = [await files.sha256(source), await files.sha256(kernel), await files.sha256(initrd)]
    return JSON.stringify([image.manifest.name, ...digests, image.cmdline, vcpuType, vcpus, measurement])
  }

  async #write(wanted: IgvmWanted, source: ImageFile): Promise<Written> {
    const { directory } = this.#deps
    const { image, vcpuType, vcpus, sign } = wanted
    const named = this.#namedFor(image)
    const unsigned = named === null ? await this.#make(wanted, source) : await readWhole(source)
    const id = await sign()
    let signed: Uint8Array
    try {
      signed = signedIgvm(unsigned, id)
    } catch (error) {
      throw wrapFault(
        error,
        `${named === null ? 'make the IGVM file of' : 'use vm.igvm'} ${source.path}`,
        'image.invalid',
      )
    }
    const path = `${directory}/${image.manifest.name}-${vcpuType}-${vcpus}.igvm`
    ensureDir(directory, { mode: 0o755 })
    // QEMU reopens it through its descriptor as another user.
    writeFileAtomic(path, signed, { mode: 0o444 })
    return { path, unsigned: toHex(sha256(unsigned)), sha256: toHex(sha256(signed)) }
  }

  #namedFor(image: Image): string | null {
    return isOfNamed(image) ? this.#deps.named : null
  }

  async #make({ image, kernel, initrd, vcpuType, vcpus }: IgvmWanted, firmware: ImageFile): Promise<Uint8Array> {
    const { files } = this.#deps
    const hashOf = async (file: ImageFile) => present(fromHex(await files.sha256(file)), 'a digest is hexadecimal')
    const [bytes, ofKernel, ofInitrd] = [await readWhole(firmware), await hashOf(kernel), await hashOf(initrd)]
    try {
      const kernelHashes = { kernel: ofKernel, initrd: ofInitrd, cmdline: sha256(cmdlineBytes(image.cmdline)) }
      return await buildImageIgvm({ firmware: bytes, kernelHashes, vcpuType, vcpus }, { sha384 })
    } catch (error) {
      throw wrapFault(error, `make the IGVM file of ${firmware.path}`, 'image.invalid')
    }
  }
}
