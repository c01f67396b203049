// The SGX extension of a PCK certificate: its platform and TCB. Pure; throws Malformed. Intel SGX PCK Certificate and
// CRL Profile Specification, section 1.3.5.

import { type Der, DerFields, dottedOid, integerHex, readAll, readOne, readSequence, TAG } from '../encoding/der.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import type { Extensions } from '../x509/certificate.ts'

/** Below Intel's arc 1.2.840.113741.1.13.1. */
export const SGX_OID = {
  extension: '1.2.840.113741.1.13.1',
  ppid: '1.2.840.113741.1.13.1.1',
  tcb: '1.2.840.113741.1.13.1.2',
  pceId: '1.2.840.113741.1.13.1.3',
  fmspc: '1.2.840.113741.1.13.1.4',
} as const satisfies Record<string, string>

/** OIDs under `tcb`: .1 to .16 are the components, followed by these two. */
const tcbMembers = { pceSvn: '.17', cpuSvn: '.18' } as const
export const sgxComponentCount = 16

export type PckExtension = {
  /** 16 bytes; zeros if the certificate hides the platform. */
  readonly ppid: Uint8Array
  /** 16 SVNs. */
  readonly components: readonly number[]
  readonly pceSvn: number
  readonly pceId: Uint8Array
  /** Family, model, stepping, platform type and custom SKU. */
  readonly fmspc: Uint8Array
}

export function hasPckExtension(extensions: Extensions): boolean {
  return extensions.has(SGX_OID.extension)
}

export function decodePckExtension(extensions: Extensions): PckExtension {
  const value = extensions.get(SGX_OID.extension)?.value
  if (value === undefined) throw new Malformed('PCK certificate: no SGX extension')
  const members = membersOf(readSequence(value, 'SGX extension'), 'SGX extension')
  const tcb = member(members, SGX_OID.tcb)
  wellFormed(tcb.tag === TAG.sequence, 'SGX extension: its TCB is not a sequence')
  const svns = membersOf(readAll(tcb.contents, 'SGX extension TCB'), 'SGX extension TCB')
  const components = Array.from({ length: sgxComponentCount }, (_, at) => small(svns, `${SGX_OID.tcb}.${at + 1}`, 255))
  return {
    ppid: octets(members, SGX_OID.ppid, 16),
    components,
    pceSvn: small(svns, `${SGX_OID.tcb}${tcbMembers.pceSvn}`, 0xffff),
    pceId: octets(members, SGX_OID.pceId, 2),
    fmspc: octets(members, SGX_OID.fmspc, 6),
  }
}

/** Reads a sequence of pairs of OID and value. Does not parse values of unknown OIDs. */
function membersOf(pairs: readonly Der[], what: string): ReadonlyMap<string, Der> {
  const members = new Map<string, Der>()
  for (const pair of pairs) {
    const fields = new DerFields(readSequence(pair.whole, what), what)
    const oid = dottedOid(fields.take(TAG.oid, 'OID').contents, what)
    const [, value] = readAll(pair.contents, what)
    wellFormed(value !== undefined && !members.has(oid), `${what} ${oid}: no value, or two`)
    members.set(oid, value)
  }
  return members
}

function member(members: ReadonlyMap<string, Der>, oid: string): Der {
  const found = members.get(oid)
  if (found === undefined) throw new Malformed(`SGX extension ${oid}: missing`)
  return found
}

function octets(members: ReadonlyMap<string, Der>, oid: string, sizeBytes: number): Uint8Array {
  const { contents } = readOne(member(members, oid).whole, TAG.octetString, `SGX extension ${oid}`)
  wellFormed(contents.length === sizeBytes, `SGX extension ${oid}: ${contents.length} bytes instead of ${sizeBytes}`)
  return contents
}

function small(members: ReadonlyMap<string, Der>, oid: string, max: number): number {
  const what = `SGX extension ${oid}`
  const hex = integerHex(readOne(member(members, oid).whole, TAG.integer, what).contents, what)
  const value = hex.length <= 4 ? Number.parseInt(hex, 16) : Number.POSITIVE_INFINITY
  wellFormed(value <= max, `${what}: more than ${max}`)
  return value
}
