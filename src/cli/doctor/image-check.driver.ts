// Checks images on disk for `strongroom doctor`: reads each file whole and compares it with its manifest. Effects:
// reads files.

import { join } from 'node:path'
import { toHex } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import { readWorkerImage } from '../../inference/worker/root.ts'
import { expectedMeasurement } from '../../vm/launch/expected.plan.ts'
import { readIgvmLaunch } from '../../vm/launch/igvm.plan.ts'
import { type Image, loadBuilderImage, loadGatewayImage, loadImage } from '../../vm/launch/image.driver.ts'
import { nativeHashes, openImageFile, readWhole } from '../../vm/launch/image-file.driver.ts'

type ImageFiles = { readonly [role: string]: { readonly path: string; readonly sha256: string } }

/** Describes the instance image. Fault image.invalid: it cannot be read, or a file does not match the manifest. */
export async function checkInstanceImage(directory: string): Promise<string> {
  // Its load checks sizes, and that the command line names the root hash.
  return await checkImage(directory, loadImage(directory))
}

/** Describes the builder image. Fault image.invalid as above, or for an image of another kind. */
export async function checkBuilderImage(directory: string): Promise<string> {
  return await checkImage(directory, loadBuilderImage(directory))
}

/** Describes the image of the gateway's VM. Faults as above. */
export async function checkGatewayImage(directory: string): Promise<string> {
  return await checkImage(directory, loadGatewayImage(directory))
}

async function checkImage(directory: string, { manifest }: Image): Promise<string> {
  await checkDigests(directory, manifest.files)
  return `${directory}: ${manifest.name}, kernel ${manifest.kernelVersion}, root hash ${manifest.rootHash.slice(0, 16)}…, all digests match`
}

/** Launch digest of the configured shape. Fault image.invalid: not in the manifest, or firmware or IGVM differs. */
export async function checkMeasurement(vm: Config['vm']): Promise<string> {
  const { manifest } = loadImage(vm.image_dir)
  const shape = { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus: vm.vcpus }
  const digest = expectedMeasurement(manifest, shape)
  if (vm.snp_boot === 'bios' && vm.firmware !== '') await checkFirmware(vm.firmware, manifest.files.firmware.sha256)
  if (vm.snp_boot === 'igvm' && vm.igvm !== '') await checkIgvm(vm.igvm, digest)
  return `${shape.vehicle}/${shape.vcpuType}/${shape.vcpus}: ${digest}`
}

/**
 * Launch digest of a build VM, which has firmware and IGVM file of its own. Fault image.invalid: not in the manifest.
 */
export function builderMeasurement({ vm, builds }: Pick<Config, 'vm' | 'builds'>): string {
  const shape = { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus: builds.vcpus }
  const digest = expectedMeasurement(loadBuilderImage(builds.image_dir).manifest, shape)
  return `${shape.vehicle}/${shape.vcpuType}/${shape.vcpus}: ${digest}`
}

/** As `builderMeasurement`, of the VM of the gateway. */
export function gatewayMeasurement({ vm, inference }: Pick<Config, 'vm' | 'inference'>): string {
  const shape = { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus: inference.vcpus }
  const digest = expectedMeasurement(loadGatewayImage(inference.worker.image_dir).manifest, shape)
  return `${shape.vehicle}/${shape.vcpuType}/${shape.vcpus}: ${digest}`
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
    `vm.igvm ${path} is not the IGVM file of the image: its launch digest is ${found}, the manifest says ${expected}. Set vm.igvm = "" for one that is made of the image`,
  )
}

async function checkFirmware(path: string, sha256: string): Promise<void> {
  const found = await digestOf(path)
  if (found === sha256) return
  throw new Fault(
    'image.invalid',
    `vm.firmware ${path} is not the firmware that the launch digests of the image were made with: its SHA-256 is ${found}, the manifest says ${sha256}`,
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
      `${path} was altered or damaged: its SHA-256 is ${found}, the manifest says ${sha256} (${role})`,
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
