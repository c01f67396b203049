// The opaque data of a GPU's report: the firmware's fields besides measurements. Pure; throws Malformed.
//
// A list of type (u16), length (u16) and value, little-endian. Types and meanings are those of NVIDIA's own verifier
// (NVIDIA/nvtrust, local_gpu_verifier, spdm_msrt_resp_msg.py). A type that NVIDIA's verifier does not list is rejected,
// because it could change the meaning of the rest.

import { concat, toHex } from '../../base/bytes.ts'
import { reader } from '../encoding/reader.ts'
import { wellFormed } from '../malformed.ts'

/**
 * SPT and MPT: passthrough of one or several GPUs in confidential mode. PPCIE: protected PCIe, in which NVLink is not
 * encrypted. Older firmware does not report its mode.
 */
export const GPU_MODES = ['SPT', 'MPT', 'PPCIE', 'unsaid'] as const
export type GpuMode = (typeof GPU_MODES)[number]

export type GpuFields = {
  readonly driverVersion: string
  /** VBIOS version, such as 96.00.9F.00.01. */
  readonly vbiosVersion: string
  readonly mode: GpuMode
  /** Whether measurement 35 is meaningful (`isNvdecMeasured`). */
  readonly isNvdecMeasured: boolean
  /** SHA-384 of the firmware; null if the report does not contain it. */
  readonly fwid: Uint8Array | null
  /** Project, its SKU and the chip's SKU, which select NVIDIA's manifest of the VBIOS; null if one is missing. */
  readonly board: string | null
}

const TYPES = {
  driverVersion: 3,
  vbiosVersion: 6,
  nvdec0Status: 11,
  chipSku: 15,
  project: 17,
  projectSku: 18,
  fwid: 20,
  protectedPcieStatus: 21,
  dataVersion: 34,
  featureFlag: 36,
} as const

/** Accepts every type that NVIDIA's verifier lists. */
const isNamed = (type: number) => (type >= 1 && type <= 25) || (type >= 32 && type <= 36)
const dataVersionMax = 1
const ON = 0xaa
const OFF = 0x55

export function readOpaque(bytes: Uint8Array): GpuFields {
  const found = opaqueFields(bytes)
  const version = found.get(TYPES.dataVersion)
  const isKnown = version === undefined || unsigned(version) <= dataVersionMax
  wellFormed(isKnown, 'device report: opaque data of a version that this release does not know')
  const parts = (['project', 'projectSku', 'chipSku'] as const).flatMap(name => found.get(TYPES[name]) ?? [])
  const fwid = found.get(TYPES.fwid) ?? null
  wellFormed(fwid === null || fwid.length === 48, 'device report: an FWID that is not a SHA-384 digest')
  return {
    driverVersion: decodePaddedText(needed(found, 'driverVersion'), 'driver version'),
    vbiosVersion: vbiosVersionOf(needed(found, 'vbiosVersion')),
    mode: modeOf(found),
    isNvdecMeasured: isOn(needed(found, 'nvdec0Status'), 'NVDEC0 status'),
    fwid,
    board: parts.length < 3 ? null : parts.map(part => decodePaddedText(part, 'board')).join('_'),
  }
}

/** Returns the values by type. Throws Malformed for a type that `isKnown` rejects. */
export function opaqueFields(bytes: Uint8Array, isKnown = isNamed): ReadonlyMap<number, Uint8Array> {
  const from = reader(bytes, 'device report: opaque data', 'little')
  const found = new Map<number, Uint8Array>()
  while (from.left() > 0) {
    const type = from.u16()
    const value = from.sized(from.left())
    wellFormed(isKnown(type), `device report: opaque data of type ${type}, which this release does not know`)
    wellFormed(!found.has(type), `device report: opaque data of type ${type} twice`)
    found.set(type, value)
  }
  return found
}

function needed(found: ReadonlyMap<number, Uint8Array>, name: keyof typeof TYPES): Uint8Array {
  const value = found.get(TYPES[name])
  wellFormed(value !== undefined, `device report: no ${name} in the opaque data`)
  return value
}

function modeOf(found: ReadonlyMap<number, Uint8Array>): GpuMode {
  const status = found.get(TYPES.protectedPcieStatus)
  const isProtectedPcie = status === undefined ? null : isOn(status, 'protected PCIe status')
  const flag = found.get(TYPES.featureFlag)
  if (flag === undefined) return isProtectedPcie === true ? 'PPCIE' : 'unsaid'
  const mode = (['SPT', 'MPT', 'PPCIE'] as const)[unsigned(flag)]
  wellFormed(mode !== undefined, 'device report: a feature flag that this release does not know')
  const agrees = isProtectedPcie === null || isProtectedPcie === (mode === 'PPCIE')
  wellFormed(agrees, 'device report: feature flag and protected PCIe status contradict each other')
  return mode
}

function isOn(value: Uint8Array, what: string): boolean {
  const [status] = value
  wellFormed(value.length === 1 && (status === ON || status === OFF), `device report: ${what} is neither on nor off`)
  return status === ON
}

/** Formats the four bytes of a little-endian word, then one more byte. */
function vbiosVersionOf(value: Uint8Array): string {
  wellFormed(value.length === 8, `device report: a VBIOS version of ${value.length} bytes`)
  const parts = concat(value.slice(0, 4).reverse(), value.slice(4, 5))
  return Array.from(parts, byte => toHex(Uint8Array.of(byte)).toUpperCase()).join('.')
}

/** Decodes text padded with zero bytes. It is shown to people, and compared with a manifest's. */
export function decodePaddedText(value: Uint8Array, what: string): string {
  const end = value.indexOf(0)
  const text = String.fromCharCode(...(end < 0 ? value : value.subarray(0, end)))
  const isPadded = end < 0 || value.subarray(end).every(byte => byte === 0)
  wellFormed(value.length <= 64 && isPadded && /^[\w.-]+$/.test(text), `device report: the ${what} is no text`)
  return text
}

function unsigned(value: Uint8Array): number {
  wellFormed(value.length >= 1 && value.length <= 4, `device report: a number of ${value.length} bytes`)
  return value.reduceRight((sum, byte) => sum * 256 + byte, 0)
}
