// The extensions of VCEK and VLEK certificates (AMD 57230, certificate extensions). Pure; throws Malformed.
// Whether they agree with a report is decided in verify/chain.ts.

import { asciiOf, byteInteger, readOne, TAG } from '../encoding/der.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import type { Extensions } from '../x509/certificate.ts'
import type { Tcb } from './tcb.ts'

/** OIDs below AMD's arc 1.3.6.1.4.1.3704.1. SPLs 4 to 7 are the reserved bytes of the TCB version. */
export const VEK_OID = {
  structVersion: '1.3.6.1.4.1.3704.1.1',
  productName: '1.3.6.1.4.1.3704.1.2',
  bootloader: '1.3.6.1.4.1.3704.1.3.1',
  tee: '1.3.6.1.4.1.3704.1.3.2',
  snp: '1.3.6.1.4.1.3704.1.3.3',
  reserved4: '1.3.6.1.4.1.3704.1.3.4',
  reserved5: '1.3.6.1.4.1.3704.1.3.5',
  reserved6: '1.3.6.1.4.1.3704.1.3.6',
  reserved7: '1.3.6.1.4.1.3704.1.3.7',
  microcode: '1.3.6.1.4.1.3704.1.3.8',
  fmc: '1.3.6.1.4.1.3704.1.3.9',
  hwId: '1.3.6.1.4.1.3704.1.4',
  cspId: '1.3.6.1.4.1.3704.1.5',
} as const satisfies Record<string, string>

const reservedOids = [VEK_OID.reserved4, VEK_OID.reserved5, VEK_OID.reserved6, VEK_OID.reserved7]

export type VekExtensions = {
  readonly structVersion: number
  /** Product name with its stepping: 'Milan-B0', 'Genoa-B1', 'Turin'. */
  readonly productName: string
  /** Security patch levels that the key is derived from. Only Turin has `fmc`. */
  readonly spl: Tcb
  /** The chip for a VCEK: 64 bytes, or 8 on Turin. The cloud provider for a VLEK. */
  readonly holder:
    | { readonly kind: 'vcek'; readonly hwId: Uint8Array }
    | { readonly kind: 'vlek'; readonly cspId: string }
}

/** Length of hwID in bytes: `long` on Milan and Genoa, `short` on Turin. */
export const HW_ID_BYTES = { long: 64, short: 8 } as const

/** Reports whether these are the extensions of a VEK, not of an ARK, ASK or ASVK. */
export function hasVekExtensions(extensions: Extensions): boolean {
  return extensions.has(VEK_OID.structVersion)
}

export function decodeVekExtensions(extensions: Extensions): VekExtensions {
  for (const oid of reservedOids) {
    // This library compares none of these levels, so they must be 0.
    wellFormed((optionalSpl(extensions, oid) ?? 0) === 0, `VEK extension ${oid}: a reserved level that is not 0`)
  }
  const structVersion = spl(extensions, VEK_OID.structVersion)
  wellFormed(structVersion <= structVersionMax, `VEK extensions: structVersion ${structVersion} is unknown`)
  return {
    structVersion,
    productName: ia5(required(extensions, VEK_OID.productName), VEK_OID.productName),
    spl: {
      fmc: optionalSpl(extensions, VEK_OID.fmc),
      bootloader: spl(extensions, VEK_OID.bootloader),
      tee: spl(extensions, VEK_OID.tee),
      snp: spl(extensions, VEK_OID.snp),
      microcode: spl(extensions, VEK_OID.microcode),
    },
    holder: holderOf(extensions),
  }
}

/** Highest structVersion: 0 on Milan and Genoa, 1 on Turin. */
const structVersionMax = 1

function holderOf(extensions: Extensions): VekExtensions['holder'] {
  const hwId = extensions.get(VEK_OID.hwId)?.value
  const cspId = extensions.get(VEK_OID.cspId)?.value
  if (hwId !== undefined && cspId === undefined) {
    // The extension holds the bare value, not a second OCTET STRING around it.
    const isLength = hwId.length === HW_ID_BYTES.long || hwId.length === HW_ID_BYTES.short
    wellFormed(isLength, `VEK extension hwID: ${hwId.length} bytes, neither 64 nor 8`)
    return { kind: 'vcek', hwId }
  }
  if (cspId !== undefined && hwId === undefined) return { kind: 'vlek', cspId: ia5(cspId, VEK_OID.cspId) }
  throw new Malformed('VEK extensions: not exactly one of hwID and cspID')
}

function required(extensions: Extensions, oid: string): Uint8Array {
  const value = extensions.get(oid)?.value
  if (value === undefined) throw new Malformed(`VEK extension ${oid}: missing`)
  return value
}

function spl(extensions: Extensions, oid: string): number {
  const what = `VEK extension ${oid}`
  return byteInteger(readOne(required(extensions, oid), TAG.integer, what).contents, what)
}

function optionalSpl(extensions: Extensions, oid: string): number | null {
  return extensions.has(oid) ? spl(extensions, oid) : null
}

function ia5(value: Uint8Array, oid: string): string {
  const what = `VEK extension ${oid}`
  return asciiOf(readOne(value, TAG.ia5String, what).contents, what)
}
