// What a launch has to be: its document, the measurement that the image's manifest promises, and how what is launched differs from it. Pure.

import { sha256 } from '../attest/hash.ts'
import type { LaunchVehicle } from '../attest/launch/digest.ts'
import { finishLaunch } from '../attest/launch/finish.ts'
import { equalConstantTime, fromBase64, toHex, utf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { ImageManifest } from '../contract/image.ts'
import { type LaunchDocument, launchFormat, launchText } from '../contract/launch.ts'
import type { SignedLaunch } from './qemu.plan.ts'

/** What the launch digest depends on beside the image's bytes. */
export type LaunchShape = { readonly vehicle: LaunchVehicle; readonly vcpuType: string; readonly vcpus: number }

/** SEV-SNP guest policy: bit 17 must be one, bit 16 allows SMT (AMD 56860, table 10). No debugging, no migration. */
export const guestPolicy = 0x30000n
/** Who lays the VM out in memory; part of the name of a digest. */
export const launchProfile = 'qemu-kvm'

/** The manifest's digest for this shape, hexadecimal. Fault image.invalid: it has none, with the shapes that it has. */
export function expectedMeasurement(
  manifest: Pick<ImageManifest, 'name' | 'launchDigests'>,
  shape: LaunchShape,
): string {
  const { vehicle, vcpuType, vcpus } = shape
  const key = `${launchProfile}/${vehicle}/${vcpuType}/${vcpus}`
  const digest = Object.hasOwn(manifest.launchDigests, key) ? manifest.launchDigests[key] : undefined
  if (digest !== undefined) return digest
  const known = Object.keys(manifest.launchDigests).map(one => one.replace(`${launchProfile}/`, ''))
  const has = known.length === 0 ? 'it has none' : `it has ${known.join(', ')}`
  throw new Fault(
    'image.invalid',
    `the manifest of image ${manifest.name} has no launch digest for ${vehicle}/${vcpuType}/${vcpus}; ${has}. Set vm.vcpu_type and vm.vcpus to one of these, or measure this shape (${measureCommand(shape)}) and add it to launchDigests as "${key}"`,
  )
}

function measureCommand({ vehicle, vcpuType, vcpus }: LaunchShape): string {
  if (vehicle === 'igvm') return 'strongroom measure igvm FILE --profile qemu-kvm'
  const files = '--firmware firmware.fd --kernel kernel --initrd initrd --cmdline "$(cat cmdline)"'
  return `strongroom measure ovmf ${files} --vcpus ${vcpus} --vcpu-type ${vcpuType} --features 0x1`
}

/** `igvmSha256`: of the IGVM file, which stands for the firmware; null with firmware. Fault image.invalid as above. */
export function launchDocument(
  manifest: ImageManifest,
  launch: LaunchShape & { readonly memoryMib: number; readonly igvmSha256: string | null },
): LaunchDocument {
  const { firmware, kernel, initrd, cmdline } = manifest.files
  const { vehicle, vcpus, vcpuType, memoryMib, igvmSha256 } = launch
  return {
    format: launchFormat,
    image: { name: manifest.name, rootHash: manifest.rootHash, inputsSha256: manifest.inputsSha256 },
    vehicle: vehicle === 'igvm' ? 'igvm' : 'ovmf',
    firmwareSha256: igvmSha256 ?? firmware.sha256,
    kernelSha256: kernel.sha256,
    initrdSha256: initrd.sha256,
    cmdlineSha256: cmdline.sha256,
    vcpus,
    vcpuType,
    memoryMib,
    policy: `0x${guestPolicy.toString(16)}`,
    measurement: expectedMeasurement(manifest, launch),
  }
}

/** HOST_DATA of a launch with this document. */
export function hostDataOf(document: LaunchDocument): Uint8Array {
  return sha256(utf8(launchText(document)))
}

/** What QEMU is about to be given, by its own bytes. */
export type GivenLaunch = {
  /** SHA-256 each, hexadecimal. */
  readonly firmware: string
  readonly kernel: string
  readonly initrd: string
  readonly cmdline: string
  /** The launch digest of these bytes on these processors. */
  readonly digest: Uint8Array
  readonly signed: SignedLaunch
}

/** In the order in which they are told. */
export type LaunchPart =
  | 'firmware'
  | 'kernel'
  | 'initrd'
  | 'command line'
  | 'policy'
  | 'host data'
  | 'operator key'
  | 'ID block'
  | 'measurement'

/**
 * The parts in which a launch is not what it has to be; empty where it is. The ID block is judged as the firmware judges it, and with it
 * what the firmware only reports: host data and operator key.
 */
export async function differingParts(
  given: GivenLaunch,
  expected: { readonly document: LaunchDocument; readonly operatorKey: Uint8Array },
): Promise<LaunchPart[]> {
  const { document, operatorKey } = expected
  const { policy, hostData, idBlock } = given.signed
  const [block, auth] = [bytesOf(idBlock.block), bytesOf(idBlock.auth)]
  const finished = await finishLaunch({ digest: given.digest, policy, idBlock: block, idAuth: auth })
  const hasFailed = (name: string) => finished.checks.some(one => one.name === name && one.outcome === 'fail')
  const isSigned = !hasFailed('id-block-format') && !hasFailed('id-block-signature')
  const isOurs = finished.idKeyDigest !== null && equalConstantTime(finished.idKeyDigest, operatorKey)
  const differs: [LaunchPart, boolean][] = [
    ['firmware', given.firmware !== document.firmwareSha256],
    ['kernel', given.kernel !== document.kernelSha256],
    ['initrd', given.initrd !== document.initrdSha256],
    ['command line', given.cmdline !== document.cmdlineSha256],
    ['policy', policy !== BigInt(document.policy) || hasFailed('launch-policy')],
    ['host data', !equalConstantTime(bytesOf(hostData), hostDataOf(document))],
    ['operator key', isSigned && !isOurs],
    ['ID block', !isSigned],
  ]
  const parts = differs.flatMap(([part, isDifferent]) => (isDifferent ? [part] : []))
  // Nothing else explains it: other processors, or a manifest whose digest is not that of its own parts.
  const isMeasured = toHex(given.digest) === document.measurement && !hasFailed('launch-digest')
  if (parts.length === 0 && !isMeasured) return ['measurement']
  // For whatever is not a check by name above.
  if (parts.length === 0 && !finished.ok) return ['ID block']
  return parts
}

/** Empty for text that is no base64: equal to nothing that is expected. */
function bytesOf(base64: string): Uint8Array {
  return fromBase64(base64) ?? new Uint8Array(0)
}
