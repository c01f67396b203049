// A guest image on disk: its manifest read and checked against the files beside it. Effects: reads files.

import { readFileSync, statSync } from 'node:fs'
import { Value } from '@sinclair/typebox/value'
import { Fault, wrapFault } from '../base/fault.ts'
import { ImageManifest } from '../contract/image.ts'
import type { QemuImage } from './qemu.plan.ts'

export type Image = QemuImage & { readonly manifest: ImageManifest }

/**
 * Loads the image in `directory`. Sizes are checked here; the contents are the guest's own business: dm-verity, and on snp the launch
 * digest, refuse altered bytes. Fault: image.invalid.
 */
export function loadImage(directory: string): Image {
  const manifest = readManifest(directory)
  for (const file of Object.values(manifest.files)) {
    const path = `${directory}/${file.path}`
    const sizeBytes = statSync(path, { throwIfNoEntry: false })?.size
    if (sizeBytes !== file.sizeBytes) {
      throw new Fault(
        'image.invalid',
        `${path}: ${sizeBytes ?? 'no such file'}; the manifest says ${file.sizeBytes} bytes`,
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

function readManifest(directory: string): ImageManifest {
  let manifest: unknown
  try {
    manifest = JSON.parse(readFileSync(`${directory}/manifest.json`, 'utf8'))
  } catch (error) {
    throw wrapFault(error, `read image manifest in ${directory}`, 'image.invalid')
  }
  if (!Value.Check(ImageManifest, manifest)) {
    const problem = Value.Errors(ImageManifest, manifest).First()
    throw new Fault(
      'image.invalid',
      `${directory}/manifest.json: ${problem?.path ?? ''}: ${problem?.message ?? 'invalid'}`,
    )
  }
  return manifest
}
