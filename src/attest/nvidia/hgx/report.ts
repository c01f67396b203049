// The fields by which reports of NVSwitches (LS10) and of the GPUs beside them name each other. Pure; throws Malformed.
//
// A PDI is a device's number of 8 bytes. Types are those of NVIDIA's own verifier (attestation-sdk,
// switch_opaque_data_parser). A switch writes PDIs in the byte order of certificates, its own and those of GPUs, and a
// GPU writes those of switches in the reverse order: so do all devices of NVIDIA's sample of a whole HGX (nvtrust,
// ppcie-verifier-sdk-cpp/tests/data).

import { toHex } from '../../../base/bytes.ts'
import { isZero } from '../../encoding/layout.ts'
import { wellFormed } from '../../malformed.ts'
import { decodePaddedText, type GpuFields, opaqueFields } from '../opaque.ts'

export type SwitchFields = Pick<GpuFields, 'fwid'> & {
  /** Such as 96.10.55.00.01. */
  readonly biosVersion: string
  /** The switch's own PDI, upper-case hexadecimal. */
  readonly pdi: string
  /** PDIs of the GPUs at its ports. */
  readonly gpuPdis: ReadonlySet<string>
  /** Lock status as the report has it; null if it has none. Genuine switches write 0100. */
  readonly lockStatus: string | null
}

const TYPES = { biosVersion: 6, fwid: 20, pdi: 22, lockStatus: 25, gpuPdis: 26 } as const
/** In a GPU's report, this type holds the PDIs of switches: one for each link. */
const switchesOfGpu = 22
/** Accepts every type that NVIDIA's verifier lists for switches. */
const isNamed = (type: number) => type >= 1 && type <= 27

const pdiBytes = 8
/** A port's entry is an index into the list, which has a place for each of eight GPUs. */
const gpuPlaces = 8

export function readSwitchFields(bytes: Uint8Array): SwitchFields {
  const found = opaqueFields(bytes, isNamed)
  const biosVersion = decodePaddedText(needed(found, 'biosVersion'), 'BIOS version')
  wellFormed(/^[0-9A-F]{2}(\.[0-9A-F]{2}){4}$/.test(biosVersion), 'switch report: a BIOS version of another form')
  const pdi = needed(found, 'pdi')
  wellFormed(pdi.length === pdiBytes && !isZero(pdi), 'switch report: its own PDI is not 8 bytes, or zero')
  const gpus = needed(found, 'gpuPdis')
  wellFormed(gpus.length >= gpuPlaces * pdiBytes, `switch report: a list of GPUs of ${gpus.length} bytes`)
  const fwid = found.get(TYPES.fwid) ?? null
  wellFormed(fwid === null || fwid.length === 48, 'switch report: an FWID that is not a SHA-384 digest')
  const lock = found.get(TYPES.lockStatus)
  return {
    ...{ biosVersion, pdi: hexOf(pdi), gpuPdis: pdisOf(gpus.subarray(0, gpuPlaces * pdiBytes)), fwid },
    lockStatus: lock === undefined ? null : toHex(lock),
  }
}

/** Returns the PDIs of the switches at a GPU's links, in a switch's own byte order. A link that is off names none. */
export function readSwitchesOfGpu(opaque: Uint8Array): ReadonlySet<string> {
  const links = opaqueFields(opaque).get(switchesOfGpu) ?? new Uint8Array(0)
  wellFormed(links.length % pdiBytes === 0, `GPU report: a list of switches of ${links.length} bytes`)
  return new Set([...pdisOf(links)].map(reversedPdi))
}

function reversedPdi(pdi: string): string {
  return (pdi.match(/../g) ?? []).reverse().join('')
}

function pdisOf(bytes: Uint8Array): ReadonlySet<string> {
  const count = bytes.length / pdiBytes
  const all = Array.from({ length: count }, (_, at) => bytes.subarray(at * pdiBytes, (at + 1) * pdiBytes))
  return new Set(all.filter(pdi => !isZero(pdi)).map(hexOf))
}

function needed(found: ReadonlyMap<number, Uint8Array>, name: keyof typeof TYPES): Uint8Array {
  const value = found.get(TYPES[name])
  wellFormed(value !== undefined, `switch report: no ${name} in the opaque data`)
  return value
}

const hexOf = (bytes: Uint8Array) => toHex(bytes).toUpperCase()
