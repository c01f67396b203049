// Response receipts `strongroom/response/v4`: the gateway's signed claim about a response, and its place there. Pure.
//
// receipt   = base64url( CBOR { claim, ed25519, mldsa65 } ), deterministic as statements are
// carried   = receipt, `.`, base64url( salt ): in the response. A receipt that is fetched later comes without the salt
// salt      = 32 random bytes of the gateway, hashed before request and response: a receipt alone confirms no guess
// signed    = UTF-8 `strongroom/response/v4`, one NUL, then the claim; no statement begins so (hybrid-keys.ts)
// claim     = CBOR { format, requestId, keyMadeBy, model, upstream, coverage, requestDigest, answerDigest, eventCount,
//             sizeBytes, promptTokens, completionTokens, issuedAt, keysDigest }
// Version 1 had neither upstream nor coverage, version 2 no salt, version 3 no keyMadeBy; all three are
// refused.
//
// Streams carry the receipt in a comment line right before their end, other responses in a header.

import { concat, toBase64Url, utf8 } from '../../base/bytes.ts'
import { type CborLimits, type CborMap, type CborValue, encodeCbor } from '../encoding/cbor.ts'
import { wellFormed } from '../malformed.ts'
import { type HybridSignature, SIGNATURE_BYTES } from './public-keys.ts'

export const responseFormat = 'strongroom/response/v4'

/**
 * Whether the upstream that answered is a workload that the gateway's attestation has a receipt of; if not, whether it
 * had shown the gateway evidence of its own, under the policy that workload.json has for it.
 */
const coverages = ['inside', 'outside', 'outside-attested'] as const
type Coverage = (typeof coverages)[number]

/**
 * Maker of the key that asked, as the host registered it. `client`: by its digest, so that the host
 * never had the secret. `host`: the host minted the key and can act as its client.
 */
const keyMakers = ['client', 'host'] as const
type KeyMaker = (typeof keyMakers)[number]

/** Asks for a receipt, with value `1`, and carries it with its salt where the response is no stream. */
export const receiptHeader = 'X-Strongroom-Receipt'

/** The salt of a response that does not carry its receipt. */
export const saltHeader = 'X-Strongroom-Receipt-Salt'

const digestBytes = 32
export const saltBytes = 32
const textBytesMax = 1024
export const receiptLimits: CborLimits = { sizeBytesMax: 16 * 1024, depthMax: 1 }

/** Every field of a claim. Counts are safe unsigned integers. */
const CLAIM_FIELDS = {
  format: 'format',
  requestId: 'text',
  keyMadeBy: 'keyMaker',
  model: 'text',
  /** Name of the upstream that answered, from the gateway's configuration. */
  upstream: 'text',
  coverage: 'coverage',
  /** SHA-256 of salt and request body, `requestDigest` of response-digest.ts. */
  requestDigest: 'digest',
  /** The chain over the response's events, `createResponseChain`. */
  answerDigest: 'digest',
  eventCount: 'count',
  sizeBytes: 'count',
  promptTokens: 'count',
  completionTokens: 'count',
  /** Milliseconds since 1970. */
  issuedAt: 'count',
  /** The gateway's keys, as its attestation receipt names them. */
  keysDigest: 'digest',
} as const satisfies Record<string, 'format' | 'text' | 'coverage' | 'keyMaker' | 'digest' | 'count'>

type ValueOf<Type> = Type extends 'digest'
  ? Uint8Array
  : Type extends 'count'
    ? number
    : Type extends 'coverage'
      ? Coverage
      : Type extends 'keyMaker'
        ? KeyMaker
        : string

export type ResponseClaim = {
  readonly [Name in Exclude<keyof typeof CLAIM_FIELDS, 'format'>]: ValueOf<(typeof CLAIM_FIELDS)[Name]>
}

/** Throws Malformed on a value of the wrong type or length. */
export function encodeClaim(claim: ResponseClaim): Uint8Array {
  const source: Readonly<Record<string, unknown>> = { ...claim, format: responseFormat }
  return encodeCbor(new Map(claimFieldNames.map(name => [name, checkedField(name, source[name])])))
}

/** The bytes under both signatures. ML-DSA's context is empty: the prefix separates these messages from all others. */
export function signedBytesOf(claimBytes: Uint8Array): Uint8Array {
  return concat(prefix, claimBytes)
}

/** The receipt's text. Throws Malformed on signatures of the wrong length. */
export function encodeResponseReceipt(claimBytes: Uint8Array, signatures: HybridSignature): string {
  const { ed25519, mldsa65 } = signatures
  const map: CborMap = new Map([
    ['claim', claimBytes],
    ['ed25519', sized(ed25519, SIGNATURE_BYTES.ed25519, 'ed25519')],
    ['mldsa65', sized(mldsa65, SIGNATURE_BYTES.mldsa65, 'mldsa65')],
  ])
  return toBase64Url(encodeCbor(map))
}

/** A receipt with its salt, as the response bears it. */
export function carriedReceipt(receipt: string, salt: Uint8Array): string {
  return `${receipt}.${toBase64Url(salt)}`
}

export const commentStart = ': strongroom-receipt '

/** The line of a stream that carries the receipt. Clients pass over comments (WHATWG HTML, section 9.2.6). */
export function receiptComment(receipt: string): string {
  return `${commentStart}${receipt}\n\n`
}

const prefix = utf8(`${responseFormat}\0`)
export const claimFieldNames = Object.keys(CLAIM_FIELDS) as (keyof typeof CLAIM_FIELDS)[]

export function checkedField(name: keyof typeof CLAIM_FIELDS, value: unknown): CborValue {
  const what = `response claim: ${name}`
  switch (CLAIM_FIELDS[name]) {
    case 'format':
      wellFormed(value === responseFormat, what)
      return responseFormat
    case 'text':
      wellFormed(typeof value === 'string' && value !== '' && utf8(value).length <= textBytesMax, what)
      return value
    case 'coverage':
      return oneOf(coverages, value, what)
    case 'keyMaker':
      return oneOf(keyMakers, value, what)
    case 'count':
      wellFormed(typeof value === 'number' && Number.isSafeInteger(value) && value >= 0, what)
      return value
    case 'digest':
      return sized(value, digestBytes, name)
  }
}

function oneOf(words: readonly string[], value: unknown, what: string): string {
  wellFormed(typeof value === 'string' && words.includes(value), what)
  return value
}

export function sized(value: unknown, sizeBytes: number, name: string): Uint8Array {
  wellFormed(value instanceof Uint8Array && value.length === sizeBytes, `response receipt: ${name}`)
  return value
}
