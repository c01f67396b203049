// Collateral: everything about a platform that Intel signs besides its quote, as one JSON document. Pure; throws
// Malformed.
//
// The document has the form that quote verifiers exchange: signed JSON as text, its signature in hexadecimal, chains in
// PEM, revocation lists as DER in hexadecimal. Intel PCS API version 4 serves the parts: signed JSON and its signature
// in one body, which is accepted whole if no separate signature is given, and chains in headers, percent-encoded.

import { fromHex } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { optional, type ReadBy, type Reader, record, text } from '../provenance/fields.ts'

/** Limit for two revocation lists of a few hundred entries, two signed documents and three chains of certificates. */
export const collateralBytesMax = 512 * 1024
const signedBytesMax = 128 * 1024
const chainCharsMax = 16 * 1024
const crlCharsMax = 64 * 1024

const chain: Reader<string> = (value, what) => {
  const pem = upTo(chainCharsMax)(value, what)
  if (!pem.startsWith('-----BEGIN%20')) return pem
  const decoded = resultOr(() => decodeURIComponent(pem), null)
  wellFormed(decoded !== null, `${what}: not percent-encoded`)
  return decoded
}
const signed = upTo(signedBytesMax)
const crl = hexOf(crlCharsMax)
const signature = hexOf(128)

const readCollateral = record({
  root_ca_crl: crl,
  pck_crl: crl,
  tcb_info: signed,
  tcb_info_signature: optional(signature),
  tcb_info_issuer_chain: chain,
  qe_identity: signed,
  qe_identity_signature: optional(signature),
  qe_identity_issuer_chain: chain,
  // Ignored: both are in the quote's own chain, which is the one that is judged.
  pck_crl_issuer_chain: optional(chain),
  pck_certificate_chain: optional(chain),
})

type GivenCollateral = ReadBy<typeof readCollateral>
export type Collateral = GivenCollateral & {
  readonly tcb_info_signature: Uint8Array
  readonly qe_identity_signature: Uint8Array
}

export function parseCollateral(bytes: Uint8Array): Collateral {
  const what = 'collateral'
  wellFormed(bytes.length <= collateralBytesMax, `${what}: ${bytes.length} bytes, at most ${collateralBytesMax}`)
  const given = readCollateral(parsedJson(what, bytes), what)
  const [info, infoSignature] = signedPart(given, 'tcb_info', 'tcbInfo')
  const [identity, identitySignature] = signedPart(given, 'qe_identity', 'enclaveIdentity')
  return {
    ...given,
    tcb_info: info,
    tcb_info_signature: infoSignature,
    qe_identity: identity,
    qe_identity_signature: identitySignature,
  }
}

/** Returns the signed text and its signature, given separately or in the body as the PCS serves it. */
function signedPart(given: GivenCollateral, name: 'tcb_info' | 'qe_identity', member: string): [string, Uint8Array] {
  const beside = given[`${name}_signature`]
  if (beside !== undefined) return [given[name], beside]
  const body = given[name].trim()
  const before = `{"${member}":`
  const end = /,"signature":"([0-9a-fA-F]{128})"\}$/.exec(body)
  const bytes = fromHex((end?.[1] ?? '').toLowerCase())
  const isWhole = body.startsWith(before) && end !== null && bytes !== null
  wellFormed(isWhole, `collateral.${name}: no ${name}_signature beside it, and not the whole body of the PCS`)
  return [body.slice(before.length, end.index), bytes]
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
