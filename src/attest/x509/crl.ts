// Certificate revocation lists in the format of AMD and Intel (RFC 5280, 5). Pure; throws Malformed.

import { type Der, DerFields, integerHex, readAll, readSequence, TAG, timeMs, wholeBits } from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'
import { type Extensions, extensionsOf, isSame, type SignatureAlgorithm, signatureAlgorithmOf } from './certificate.ts'

export type Crl = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly issuer: Uint8Array
  readonly thisUpdateMs: number
  /** Null if absent, although RFC 5280 requires it: the list would never expire, so verify/revocation.ts rejects it. */
  readonly nextUpdateMs: number | null
  /** Time of revocation by serial number, written as in a certificate. */
  readonly revoked: ReadonlyMap<string, number>
  readonly extensions: Extensions
  readonly signature: Uint8Array
}

const crlEntriesMax = 4096

export function decodeCrl(der: Uint8Array): Crl {
  const what = 'CRL'
  const outer = new DerFields(readSequence(der, what), what)
  const list = outer.take(TAG.sequence, 'TBSCertList')
  const outerAlgorithm = outer.take(TAG.sequence, 'signatureAlgorithm')
  const signature = wholeBits(outer.take(TAG.bitString, 'signature').contents, `${what} signature`)
  outer.end()

  const fields = new DerFields(readAll(list.contents, what), what)
  const version = fields.take(TAG.integer, 'version')
  wellFormed(integerHex(version.contents, what) === '01', `${what}: not version 2`)
  const innerAlgorithm = fields.take(TAG.sequence, 'signature algorithm')
  wellFormed(isSame(innerAlgorithm.whole, outerAlgorithm.whole), `${what}: two different signature algorithms`)
  const issuer = fields.take(TAG.sequence, 'issuer').whole
  const thisUpdate = takeTime(fields)
  wellFormed(thisUpdate !== null, `${what}: no thisUpdate`)
  const nextUpdate = takeTime(fields)
  const entries = fields.optional(TAG.sequence)
  const extensions = fields.optional(TAG.context0)
  fields.end()

  return {
    signedBytes: list.whole,
    signatureAlgorithm: signatureAlgorithmOf(innerAlgorithm),
    issuer,
    thisUpdateMs: timeMs(thisUpdate, `${what} thisUpdate`),
    nextUpdateMs: nextUpdate === null ? null : timeMs(nextUpdate, `${what} nextUpdate`),
    revoked: revokedOf(entries),
    extensions: extensions === null ? new Map() : extensionsOf(extensions.contents, what),
    signature,
  }
}

function takeTime(fields: DerFields): Der | null {
  return fields.optional(TAG.utcTime) ?? fields.optional(TAG.generalizedTime)
}

function revokedOf(entries: Der | null): Map<string, number> {
  const revoked = new Map<string, number>()
  const list = entries === null ? [] : readAll(entries.contents, 'CRL entries')
  wellFormed(list.length <= crlEntriesMax, `CRL: ${list.length} entries`)
  for (const entry of list) {
    const what = 'CRL entry'
    const fields = new DerFields(readSequence(entry.whole, what), what)
    const serial = integerHex(fields.take(TAG.integer, 'serial number').contents, what)
    const date = takeTime(fields)
    wellFormed(date !== null, `${what}: no date`)
    const extensions = fields.optional(TAG.sequence)
    fields.end()
    // A critical entry extension would change which issuer the serial number belongs to (RFC 5280 section 5.3.3).
    const isPlain =
      extensions === null || ![...extensionsOf(extensions.whole, what).values()].some(extension => extension.critical)
    wellFormed(isPlain, `${what}: a critical extension`)
    wellFormed(!revoked.has(serial), `${what}: a serial number twice`)
    revoked.set(serial, timeMs(date, what))
  }
  return revoked
}
