// The expected launch: its document, its measurement by the manifest, and how a given launch differs from it. Pure.

import { sha256 } from '../../attest/hash.ts'
import type { LaunchVehicle } from '../../attest/launch/digest.ts'
import { finishLaunch } from '../../attest/launch/finish.ts'
import { guestPolicy, launchProfile } from '../../attest/launch/guest.ts'
import { equalConstantTime, fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { ImageManifest } from '../../contract/vm/image.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../contract/vm/launch.ts'
import type { SignedLaunch } from './qemu.plan.ts'

/** Inputs of the launch digest besides the image's bytes. */
export type LaunchShape = { readonly vehicle: LaunchVehicle; readonly vcpuType: string; readonly vcpus: number }

/**
 * Returns the manifest's digest for this shape, hexadecimal. Throws Fault image.invalid, which lists the shapes, if it
 * has none.
 */
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

/**
 * Builds the launch document. `igvmSha256`: digest of the IGVM file without ID block; null if booted by firmware.
 * Throws Fault image.invalid as above.
 */
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

/** Canonical texts. HOST_DATA of a launch is the digest of the workload or, without one, of the launch document. */
export type LaunchTexts = { readonly document: string; readonly workload: string | null }

export function hostDataOf({ document, workload }: LaunchTexts): Uint8Array {
  return sha256(utf8(workload ?? document))
}

/** A launch that is about to be passed to QEMU, computed from the bytes themselves. */
export type GivenLaunch = {
  /** SHA-256, hexadecimal. */
  readonly firmware: string
  readonly kernel: string
  readonly initrd: string
  readonly cmdline: string
  /** The launch digest of these bytes on these processors. */
  readonly digest: Uint8Array
  readonly signed: SignedLaunch
  /** Null if booted by firmware. Otherwise `firmware` is the one in the IGVM file. */
  readonly igvm: GivenIgvm | null
}

/** SHA-256 digests, hexadecimal. Null if the file has no such part. */
export type GivenIgvm = {
  /** Digest of the file without its ID block. */
  readonly unsigned: string
  /** Hashes in the file that the firmware compares with the parts from QEMU. */
  readonly kernel: string | null
  readonly initrd: string | null
  readonly cmdline: string | null
  /** Digest of the given command line with its NUL, as in `cmdline`. */
  readonly cmdlineGiven: string
  readonly policy: bigint | null
}

/** In the order in which mismatches are reported. */
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
 * Returns the parts in which a launch differs from the expected one. Checks the ID block as the firmware does, and also
 * the fields that the firmware only reports: host data and operator key.
 */
export async function differingParts(
  given: GivenLaunch,
  expected: {
    readonly document: LaunchDocument
    /** Canonical text of workload.json. Null if there is none. */
    readonly workload: string | null
    readonly operatorKey: Uint8Array
    /** SHA-256 of the firmware that the image's manifest names. */
    readonly firmwareSha256: string
  },
): Promise<LaunchPart[]> {
  const { document, workload, operatorKey, firmwareSha256 } = expected
  const { igvm } = given
  const { policy, hostData, idBlock } = given.signed
  const [block, auth] = [decodeBase64(idBlock.block), decodeBase64(idBlock.auth)]
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
    ['host data', !equalConstantTime(decodeBase64(hostData), hostDataOf({ document: launchText(document), workload }))],
    ['operator key', isSigned && !isOurs],
    ['ID block', !isSigned],
  ]
  const parts = differs.flatMap(([part, isDifferent]) => (isDifferent ? [part] : []))
  // All inputs match, so the processors differ, or the manifest's digest does not match its own parts.
  const isMeasured = toHex(given.digest) === document.measurement && !hasFailed('launch-digest')
  if (parts.length === 0 && !isMeasured) return ['measurement']
  // A failed check without a separate part.
  if (parts.length === 0 && !finished.ok) return ['ID block']
  return parts
}

/** Decodes base64. Empty for other text, which equals no expected value. */
function decodeBase64(base64: string): Uint8Array {
  return fromBase64(base64) ?? new Uint8Array(0)
}
