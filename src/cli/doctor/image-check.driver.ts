// Checks images on disk for `strongroom doctor`: reads each file whole and compares it with its manifest. Effects:
// reads files.

import { join } from 'node:path'
import { toHex } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import { readWorkerImage } from '../../inference/worker/root.ts'
import { expectedMeasurement } from '../../vm/launch/expected.plan.ts'
import { readIgvmLaunch } from '../../vm/launch/igvm.plan.ts'
import { type Image, loadImage } from '../../vm/launch/image.driver.ts'
import { nativeHashes, openImageFile, readWhole } from '../../vm/launch/image-file.driver.ts'

type ImageFiles = { readonly [role: string]: { readonly path: string; readonly sha256: string } }

/**
 * Describes the image of a VM. `load` checks sizes, its kind, and that the command line names the root hash. Fault
 * image.invalid: that of `load`, or a file does not match the manifest.
 */
export async function checkImage(directory: string, load: (directory: string) => Image): Promise<string> {
  const { manifest } = load(directory)
  await checkDigests(directory, manifest.files)
  return `${directory}: ${manifest.name}, kernel ${manifest.kernelVersion}, root hash ${manifest.rootHash.slice(0, 16)}…, all digests match`
}

/** Launch digest of the configured shape. Fault image.invalid: not in the manifest, or firmware or IGVM differs. */
export async function checkMeasurement(vm: Config['vm']): Promise<string> {
  const { manifest } = loadImage(vm.image_dir)
  const { shape, digest } = measured(manifest, vm, vm.vcpus)
  if (vm.snp_boot === 'bios' && vm.firmware !== '') await checkFirmware(vm.firmware, manifest.files.firmware.sha256)
  if (vm.snp_boot === 'igvm' && vm.igvm !== '') await checkIgvm(vm.igvm, digest)
  return `${shape}: ${digest}`
}

/**
 * Launch digest of a VM with firmware and IGVM file of its own: that of a build or of the gateway. Fault image.invalid:
 * not in the manifest.
 */
export function measurementOf({ manifest }: Pick<Image, 'manifest'>, vm: Config['vm'], vcpus: number): string {
  const { shape, digest } = measured(manifest, vm, vcpus)
  return `${shape}: ${digest}`
}

function measured(manifest: Image['manifest'], vm: Config['vm'], vcpus: number) {
  const digest = expectedMeasurement(manifest, { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus })
  return { shape: `${vm.snp_boot}/${vm.vcpu_type}/${vcpus}`, digest }
}

async function checkIgvm(path: string, expected: string): Promise<void> {
  let found: string
  try {
    using file = openImageFile(path)
    const { digest, idBlock } = await readIgvmLaunch(await readWhole(file), nativeHashes)
    if (idBlock !== null) throw new Fault('image.invalid', 'it has an ID block; this host signs launches itself')
    found = toHex(digest)
  } catch (error) {
    throw wrapFault(error, `vm.igvm ${path}`, 'image.invalid')
  }
  if (found === expected) return
  throw new Fault(
    'image.invalid',
    `vm.igvm ${path} is not the IGVM file of the image: its launch digest is ${found}, the manifest has ${expected}. Set vm.igvm = "" for one that is made of the image`,
  )
}

async function checkFirmware(path: string, sha256: string): Promise<void> {
  const found = await digestOf(path)
  if (found === sha256) return
  throw new Fault(
    'image.invalid',
    `vm.firmware ${path} is not the firmware that the launch digests of the image were made with: its SHA-256 is ${found}, the manifest has ${sha256}`,
  )
}

/** Describes the inference image. Fault image.invalid as above. The worker checks the root hash at each start. */
export async function checkWorkerImage(directory: string): Promise<string> {
  const manifest = readWorkerImage(directory)
  await checkDigests(directory, manifest.files)
  return `${directory}, root hash ${manifest.rootHash.slice(0, 16)}…, digest matches`
}

async function checkDigests(directory: string, files: ImageFiles): Promise<void> {
  for (const [role, { path: name, sha256 }] of Object.entries(files)) {
    const path = join(directory, name)
    const found = await digestOf(path)
    if (found === sha256) continue
    throw new Fault(
      'image.invalid',
      `${path} was altered or damaged: its SHA-256 is ${found}, the manifest has ${sha256} (${role})`,
    )
  }
}

async function digestOf(path: string): Promise<string> {
  const hasher = new Bun.CryptoHasher('sha256')
  try {
    for await (const chunk of Bun.file(path).stream()) hasher.update(chunk)
  } catch (error) {
    throw wrapFault(error, `read ${path}`, 'image.invalid')
  }
  return hasher.digest('hex')
}
