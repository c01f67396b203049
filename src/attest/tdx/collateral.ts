// Collateral: all that Intel signs about a platform beside its quote, as one JSON document. Pure; throws Malformed.
//
// The document is the one that quote verifiers exchange: signed JSON as text, its signature in hexadecimal, chains in
// PEM, revocation lists as DER in hexadecimal. Intel PCS API version 4 serves the parts.

import { fromHex, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { optional, type ReadBy, type Reader, record, text } from '../provenance/fields.ts'

/** Two revocation lists of some hundred entries, two signed documents, three chains of certificates. */
export const collateralBytesMax = 512 * 1024
const signedBytesMax = 128 * 1024
const chainCharsMax = 16 * 1024
const crlCharsMax = 64 * 1024

const chain = upTo(chainCharsMax)
const signed = upTo(signedBytesMax)
const crl = hexOf(crlCharsMax)
const signature = hexOf(128)

const readCollateral = record({
  root_ca_crl: crl,
  pck_crl: crl,
  tcb_info: signed,
  tcb_info_signature: signature,
  tcb_info_issuer_chain: chain,
  qe_identity: signed,
  qe_identity_signature: signature,
  qe_identity_issuer_chain: chain,
  // Both are in the quote's own chain, which is the one that is judged.
  pck_crl_issuer_chain: optional(chain),
  pck_certificate_chain: optional(chain),
})

export type Collateral = ReadBy<typeof readCollateral>

export function parseCollateral(bytes: Uint8Array): Collateral {
  const what = 'collateral'
  wellFormed(bytes.length <= collateralBytesMax, `${what}: ${bytes.length} bytes, at most ${collateralBytesMax}`)
  return readCollateral(parsedJson(what, bytes), what)
}

/** The same form again, for makers of simulated collateral. */
export function collateralJson(collateral: Collateral): Uint8Array {
  const hex = (bytes: Uint8Array) => Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('')
  const plain = Object.entries(collateral).map(([name, value]) => [
    name,
    value instanceof Uint8Array ? hex(value) : value,
  ])
  return utf8(JSON.stringify(Object.fromEntries(plain)))
}

function upTo(charsMax: number): Reader<string> {
  return (value, what) => {
    const read = text(value, what)
    wellFormed(read.length <= charsMax, `${what}: ${read.length} characters, at most ${charsMax}`)
    return read
  }
}

function hexOf(charsMax: number): Reader<Uint8Array> {
  return (value, what) => {
    const bytes = fromHex(upTo(charsMax)(value, what).toLowerCase())
    wellFormed(bytes !== null && bytes.length > 0, `${what}: not bytes in hexadecimal`)
    return bytes
  }
}
