// A guest image on disk: its manifest, read and compared with the files next to it. Effects: reads files.

import { readFileSync, statSync } from 'node:fs'
import { Malformed } from '../../attest/malformed.ts'
import { imageProvenanceName, imageProvenanceProblem, readImageProvenance } from '../../attest/provenance/image.ts'
import type { ResourceDescriptor } from '../../attest/provenance/slsa.ts'
import { Fault, messageOf, wrapFault } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { ImageManifest } from '../../contract/vm/image.ts'
import { imageDigest, sha256Hex } from './image-digest.driver.ts'
import type { QemuImage } from './qemu.plan.ts'

/** Name of the image that build VMs boot. */
export const builderImage = 'builder'
/** Name of the image that the gateway's VM boots. */
export const gatewayVmImage = 'inference'

export type Image = QemuImage & {
  readonly manifest: ImageManifest
  /** Firmware that checks kernel hashes. */
  readonly firmware: string
  readonly root: string
}

/**
 * Loads the image in `directory` and checks sizes only. Altered bytes are refused later: those of the root by dm-verity
 * in the guest, all others before QEMU starts (launcher.driver.ts) and, on snp, by the firmware. Fault image.invalid.
 */
export function loadImage(directory: string): Image {
  const manifest = readManifest(directory)
  for (const file of Object.values(manifest.files)) {
    const path = `${directory}/${file.path}`
    const sizeBytes = statSync(path, { throwIfNoEntry: false })?.size
    if (sizeBytes !== file.sizeBytes) {
      throw new Fault(
        'image.invalid',
        `${path}: ${sizeBytes ?? 'no such file'}; the manifest has ${file.sizeBytes} bytes`,
      )
    }
  }
  const cmdline = readFileSync(`${directory}/${manifest.files.cmdline.path}`, 'utf8')
  if (!cmdline.includes(manifest.rootHash)) {
    throw new Fault('image.invalid', `${directory}: the kernel command line does not name the manifest's root hash`)
  }
  return {
    manifest,
    cmdline,
    firmware: `${directory}/${manifest.files.firmware.path}`,
    root: `${directory}/${manifest.files.root.path}`,
    kernel: `${directory}/${manifest.files.kernel.path}`,
    initrd: `${directory}/${manifest.files.initrd.path}`,
  }
}

/** An image with provenance for its own manifest. */
export type BuilderImage = Image & {
  /** SHA-256 of manifest.json, hexadecimal. */
  readonly manifestSha256: string
  /** SHA-256 of provenance.json, hexadecimal. */
  readonly provenanceSha256: string
  /** Every file of the image, from its provenance. */
  readonly subject: readonly ResourceDescriptor[]
}

/**
 * Loads the image of build VMs. Throws Fault image.invalid as `loadImage` does, for another kind of image, or if the
 * manifest has no provenance.
 */
export function loadBuilderImage(directory: string): BuilderImage {
  const image = loadNamedImage(directory, builderImage, 'build VMs boot')
  return { ...image, ...provenanceOf(directory, image.manifest) }
}

/**
 * Loads the image that the gateway's VM boots. Throws Fault image.invalid as `loadImage` does, or for an image of
 * another kind.
 */
export function loadGatewayVmImage(directory: string): Image {
  return loadNamedImage(directory, gatewayVmImage, "the gateway's VM boots")
}

function loadNamedImage(directory: string, expected: string, who: string): Image {
  const image = loadImage(directory)
  const { name } = image.manifest
  if (name === expected) return image
  throw new Fault('image.invalid', `${directory} holds the image \`${name}\`; ${who} the image \`${expected}\``)
}

function provenanceOf(
  directory: string,
  { name, inputsSha256, rootHash, files }: ImageManifest,
): Omit<BuilderImage, keyof Image> {
  const path = `${directory}/${imageProvenanceName}`
  try {
    const bytes = readFileSync(path)
    const provenance = readImageProvenance(bytes)
    const manifestSha256 = imageDigest(directory)
    const output = {
      manifestSha256,
      files: Object.values(files),
      root: files.root.path,
      rootHash,
    }
    const problem = imageProvenanceProblem(provenance, { name, inputsSha256, ...output })
    if (problem === null) {
      return { manifestSha256, provenanceSha256: sha256Hex(bytes), subject: provenance.subject }
    }
    throw new Malformed(problem)
  } catch (cause) {
    throw new Fault(
      'image.invalid',
      `${path}: ${messageOf(cause)}. Builds take no image whose provenance is missing or of another image: build it again (\`bun scripts/build-image.ts ${name}\`), and copy its whole directory`,
      { cause },
    )
  }
}

/** Reports whether `vm.firmware` and `vm.igvm` apply to this image. They belong to the instance image. */
export function isOfNamed({ manifest }: Pick<Image, 'manifest'>): boolean {
  return manifest.name !== builderImage && manifest.name !== gatewayVmImage
}

function readManifest(directory: string): ImageManifest {
  const path = `${directory}/manifest.json`
  let bytes: Uint8Array
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw wrapFault(error, `read image manifest ${path}`, 'image.invalid')
  }
  return checkedJson(ImageManifest, bytes, { what: path, code: 'image.invalid' })
}
