// Compares a VM's launch document, which its report attests, with the expected image. Pure; throws Malformed.

import { parsedJson } from '../attest/encoding/json.ts'
import type { LaunchVehicle } from '../attest/launch/digest.ts'
import { launchProfile } from '../attest/launch/guest.ts'
import { wellFormed } from '../attest/malformed.ts'
import { type Check, check, fail, notChecked } from '../attest/verdict.ts'
import { fromHex, utf8 } from '../base/bytes.ts'
import { ImageManifest } from '../contract/vm/image.ts'
import { LaunchDocument, launchText } from '../contract/vm/launch.ts'
import { ofForm } from './form.ts'

/** The parts of an image's manifest.json with which a launch is compared. */
export type ExpectedImage = Pick<ImageManifest, 'name' | 'rootHash' | 'inputsSha256' | 'files' | 'launchDigests'>

/** Reads an image's manifest.json. */
export function readExpectedImage(bytes: Uint8Array): ExpectedImage {
  const manifest = ofForm('manifest', ImageManifest, parsedJson('manifest', bytes))
  const { name, rootHash, inputsSha256, files, launchDigests } = manifest
  wellFormed(Object.keys(launchDigests).length > 0, 'manifest: launchDigests is empty')
  return { name, rootHash, inputsSha256, files, launchDigests }
}

/** Reads exactly the canonical text. Throws Malformed for any other encoding of the same document. */
export function readLaunch(text: string): LaunchDocument {
  const what = 'launch document'
  const launch = ofForm(what, LaunchDocument, parsedJson(what, utf8(text)))
  wellFormed(launchText(launch) === text, `${what}: not in its canonical form`)
  return launch
}

/** Returns the manifest's digest for this shape of VM; null if it has none. */
export function expectedMeasurement(image: ExpectedImage, launch: LaunchDocument): Uint8Array | null {
  const digest = digestOf(image, launch)
  return digest === null ? null : fromHex(digest)
}

/** Compares the measurement, and every digest of the document that is also in the manifest. */
export function imageCheck(image: ExpectedImage | 'any', launch: LaunchDocument | null): Check {
  const name = 'image'
  if (image === 'any') return notChecked(name, 'no image is expected; name its manifest by --image', false)
  if (launch === null) return notChecked(name, 'the launch document cannot be read', true)
  const { files } = image
  const compared: readonly (readonly [field: string, found: string, expected: string])[] = [
    ['image.name', launch.image.name, image.name],
    ['image.rootHash', launch.image.rootHash, image.rootHash],
    ['image.inputsSha256', launch.image.inputsSha256, image.inputsSha256],
    // An IGVM file contains the firmware, so its digest replaces the firmware's.
    ...(launch.vehicle === 'ovmf' ? [['firmwareSha256', launch.firmwareSha256, files.firmware.sha256] as const] : []),
    ['kernelSha256', launch.kernelSha256, files.kernel.sha256],
    ['initrdSha256', launch.initrdSha256, files.initrd.sha256],
    ['cmdlineSha256', launch.cmdlineSha256, files.cmdline.sha256],
  ]
  const [wrong] = compared.filter(([, found, expected]) => found !== expected)
  if (wrong !== undefined) return fail(name, `${wrong[0]} is ${wrong[1]}, the manifest has ${wrong[2]}`)
  const shape = `${launch.vehicle}/${launch.vcpuType}/${launch.vcpus}`
  const digest = digestOf(image, launch)
  if (digest === null) return fail(name, `the manifest has no launch digest for ${shape}`)
  return check(
    name,
    digest === launch.measurement,
    `measurement is ${launch.measurement}, the manifest has ${digest} for ${shape}`,
    `${image.name}, ${shape}`,
  )
}

/** Names of vehicles in manifests. QEMU receives firmware outside of an IGVM file with -bios. */
const VEHICLE_NAMES = { ovmf: 'bios', igvm: 'igvm' } as const satisfies Record<LaunchDocument['vehicle'], LaunchVehicle>

function digestOf({ launchDigests }: ExpectedImage, { vehicle, vcpuType, vcpus }: LaunchDocument): string | null {
  const key = `${launchProfile}/${VEHICLE_NAMES[vehicle]}/${vcpuType}/${vcpus}`
  return Object.hasOwn(launchDigests, key) ? (launchDigests[key] ?? null) : null
}

/** Describes a launch document for people. */
export function launchWords({ image, vehicle, vcpus, vcpuType, memoryMib }: LaunchDocument): string {
  return `image ${image.name}, ${vehicle}, ${vcpus} vCPU of ${vcpuType}, ${memoryMib} MiB`
}
