// The identity of the firmware for which a GPU's attestation key was made, from the key's certificate. Pure; throws
// Malformed.
//
// Hopper certifies a TCG CompositeDeviceID (2.23.133.5.4.1, DICE Certificate Profiles 1.0, early form: version, device
// key, FWID), Blackwell a DiceTcbInfo (2.23.133.5.4.1.1, DICE Attestation Architecture 1.1, section 6.1.1).

import { DerFields, dottedOid, readAll, readSequence, TAG, wholeBits } from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'
import { type Certificate, OID } from '../x509/certificate.ts'

export type FirmwareIdentity = {
  /** SHA-384. */
  readonly fwid: Uint8Array
  /** DiceTcbInfo flags that make the firmware untrustworthy: `notSecure`, `recovery`, `debug`. */
  readonly weak: readonly string[]
}

const compositeDeviceId = '2.23.133.5.4.1'
const tcbInfo = '2.23.133.5.4.1.1'

/** Returns the firmware identity; null if the certificate contains none. */
export function firmwareIdentityOf({ extensions }: Certificate): FirmwareIdentity | null {
  const composite = extensions.get(compositeDeviceId)
  const info = extensions.get(tcbInfo)
  wellFormed(composite === undefined || info === undefined, 'certificate: two identities of firmware')
  if (composite !== undefined) return { fwid: compositeFwid(composite.value), weak: [] }
  return info === undefined ? null : tcbInfoOf(info.value)
}

function compositeFwid(bytes: Uint8Array): Uint8Array {
  const what = 'CompositeDeviceID'
  const fields = new DerFields(readSequence(bytes, what), what)
  fields.take(TAG.integer, 'version')
  fields.take(TAG.sequence, 'device key')
  const fwid = fields.take(TAG.sequence, 'FWID')
  fields.end()
  return fwidOf(fwid.contents)
}

/** Implicit context tags of DiceTcbInfo, in order. All except the FWIDs are optional. */
const FIELDS = {
  ...{ vendor: 0x80, model: 0x81, version: 0x82, svn: 0x83, layer: 0x84, index: 0x85 },
  ...{ fwids: 0xa6, flags: 0x87, vendorInfo: 0x88, type: 0x89 },
} as const
/** Bit numbers of OperationalFlags, counted from the first byte's highest bit. */
const WEAK = { notSecure: 1, recovery: 2, debug: 3 } as const

function tcbInfoOf(bytes: Uint8Array): FirmwareIdentity {
  const what = 'DiceTcbInfo'
  const fields = new DerFields(readSequence(bytes, what), what)
  for (const tag of [FIELDS.vendor, FIELDS.model, FIELDS.version, FIELDS.svn, FIELDS.layer, FIELDS.index]) {
    fields.optional(tag)
  }
  const [first] = readAll(fields.take(FIELDS.fwids, 'FWIDs').contents, what)
  const flags = fields.optional(FIELDS.flags)
  fields.optional(FIELDS.vendorInfo)
  fields.optional(FIELDS.type)
  fields.end()
  wellFormed(first?.tag === TAG.sequence, `${what}: no FWID`)
  const bits = flags === null ? new Uint8Array(1) : wholeBits(flags.contents, `${what} flags`)
  const weak = Object.entries(WEAK).filter(([, bit]) => ((bits[0] ?? 0) & (0x80 >> bit)) !== 0)
  return { fwid: fwidOf(first.contents), weak: weak.map(([name]) => name) }
}

function fwidOf(contents: Uint8Array): Uint8Array {
  const what = 'FWID'
  const fields = new DerFields(readAll(contents, what), what)
  const algorithm = dottedOid(fields.take(TAG.oid, 'algorithm').contents, what)
  const digest = fields.take(TAG.octetString, 'digest').contents
  fields.end()
  wellFormed(algorithm === OID.sha384 && digest.length === 48, `${what}: not a SHA-384 digest`)
  return digest
}
