// What a launch has to be: its document, the measurement that the image's manifest promises, and how what is launched differs from it. Pure.

import { sha256 } from '../../attest/hash.ts'
import type { LaunchVehicle } from '../../attest/launch/digest.ts'
import { finishLaunch } from '../../attest/launch/finish.ts'
import { guestPolicy, launchProfile } from '../../attest/launch/guest.ts'
import { equalConstantTime, fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { ImageManifest } from '../../contract/vm/image.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../contract/vm/launch.ts'
import type { SignedLaunch } from './qemu.plan.ts'

/** What the launch digest depends on beside the image's bytes. */
export type LaunchShape = { readonly vehicle: LaunchVehicle; readonly vcpuType: string; readonly vcpus: number }

/** The manifest's digest for this shape, hexadecimal. Fault image.invalid: it has none, with the shapes that it has. */
export function expectedMeasurement(
  manifest: Pick<ImageManifest, 'name' | 'launchDigests'>,
  shape: LaunchShape,
): string {
  const { vehicle, vcpuType, vcpus } = shape
  const key = `${launchProfile}/${vehicle}/${vcpuType}/${vcpus}`
  const digest = Object.hasOwn(manifest.launchDigests, key) ? manifest.launchDigests[key] : undefined
  if (digest !== undefined) return digest
  const known = Object.keys(manifest.launchDigests).map(key => key.replace(`${launchProfile}/`, ''))
  const has = known.length === 0 ? 'it has none' : `it has ${known.join(', ')}`
  throw new Fault(
    'image.invalid',
    `the manifest of image ${manifest.name} has no launch digest for ${vehicle}/${vcpuType}/${vcpus}; ${has}. Set vm.vcpu_type and vm.vcpus to one of these, or measure this shape (${measureCommand(shape)}) and add it to launchDigests as "${key}"`,
  )
}

function measureCommand({ vehicle, vcpuType, vcpus }: LaunchShape): string {
  if (vehicle === 'igvm') return `strongroom measure igvm --image DIR --vcpus ${vcpus} --vcpu-type ${vcpuType}`
  const files = '--firmware firmware.fd --kernel kernel --initrd initrd --cmdline "$(cat cmdline)"'
  return `strongroom measure ovmf ${files} --vcpus ${vcpus} --vcpu-type ${vcpuType} --features 0x1`
}

/** `igvmSha256`: of the IGVM file without an ID block, which stands for the firmware; null with firmware. Fault image.invalid as above. */
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

/** What HOST_DATA of a launch stands for: the workload where there is one, else the launch document. Canonical texts, both. */
export type LaunchTexts = { readonly document: string; readonly workload: string | null }

export function hostDataOf({ document, workload }: LaunchTexts): Uint8Array {
  return sha256(utf8(workload ?? document))
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
  /** Of an IGVM file: null with firmware. Then `firmware` is the one in the file. */
  readonly igvm: GivenIgvm | null
}

/** SHA-256, hexadecimal; null for what the file does not have. */
export type GivenIgvm = {
  /** Of the file without its ID block. */
  readonly unsigned: string
  /** With these the firmware compares what it is given. */
  readonly kernel: string | null
  readonly initrd: string | null
  readonly cmdline: string | null
  /** That of the command line that is given, taken as `cmdline` is: with its NUL. */
  readonly cmdlineGiven: string
  readonly policy: bigint | null
}

/** In the order in which they are told. */
export type LaunchPart =
  | 'firmware'
  | 'kernel'
  | 'initrd'
  | 'command line'
  | 'IGVM file'
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
  expected: {
    readonly document: LaunchDocument
    /** Canonical text of workload.json; null for none. */
    readonly workload: string | null
    readonly operatorKey: Uint8Array
    /** SHA-256 of the firmware that the image's manifest names. */
    readonly firmwareSha256: string
  },
): Promise<LaunchPart[]> {
  const { document, workload, operatorKey, firmwareSha256 } = expected
  const { igvm } = given
  const { policy, hostData, idBlock } = given.signed
  const [block, auth] = [bytesOf(idBlock.block), bytesOf(idBlock.auth)]
  const finished = await finishLaunch({ digest: given.digest, policy, idBlock: block, idAuth: auth })
  const hasFailed = (name: string) => finished.checks.some(check => check.name === name && check.outcome === 'fail')
  const isSigned = !hasFailed('id-block-format') && !hasFailed('id-block-signature')
  const isOurs = finished.idKeyDigest !== null && equalConstantTime(finished.idKeyDigest, operatorKey)
  const differs: [LaunchPart, boolean][] = [
    ['firmware', given.firmware !== (igvm === null ? document.firmwareSha256 : firmwareSha256)],
    ['kernel', [given.kernel, igvm?.kernel].some(text => text !== undefined && text !== document.kernelSha256)],
    ['initrd', [given.initrd, igvm?.initrd].some(text => text !== undefined && text !== document.initrdSha256)],
    ['command line', given.cmdline !== document.cmdlineSha256 || (igvm !== null && igvm.cmdline !== igvm.cmdlineGiven)],
    ['IGVM file', igvm !== null && igvm.unsigned !== document.firmwareSha256],
    [
      'policy',
      [policy, igvm?.policy].some(value => value !== undefined && value !== BigInt(document.policy)) ||
        hasFailed('launch-policy'),
    ],
    ['host data', !equalConstantTime(bytesOf(hostData), hostDataOf({ document: launchText(document), workload }))],
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
