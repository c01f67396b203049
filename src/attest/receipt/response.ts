// Response receipts `strongroom/response/v4`: the gateway's signed claim about a response, and its location there.
// Pure.
//
//   receipt   = base64url( CBOR { claim, ed25519, mldsa65 } ), deterministic as statements are
//   carried   = receipt, `.`, base64url( salt ): in the response. A receipt that is fetched later has no salt
//   salt      = 32 random bytes of the gateway, hashed before request and response: a receipt alone confirms no guess
//   signed    = UTF-8 `strongroom/response/v4`, one NUL, then the claim; no statement begins so (hybrid-keys.ts)
//   claim     = CBOR { format, requestId, keyMadeBy, model, upstream, coverage, requestDigest, answerDigest,
//               eventCount, sizeBytes, promptTokens, completionTokens, issuedAt, keysDigest }
//
// Verifiers reject version 1 (no upstream and no coverage), version 2 (no salt) and version 3 (no keyMadeBy).
//
// In a stream, the receipt is in a comment line immediately before the end; in other responses, in a header.

import { concat, toBase64Url, utf8 } from '../../base/bytes.ts'
import { type CborLimits, type CborMap, type CborValue, encodeCbor } from '../encoding/cbor.ts'
import { wellFormed } from '../malformed.ts'
import { type HybridSignature, SIGNATURE_BYTES } from './public-keys.ts'

export const responseFormat = 'strongroom/response/v4'

/**
 * Whether the gateway's attestation has a receipt of the workload that served as upstream. If not, whether the upstream
 * presented its own evidence to the gateway, under its policy in workload.json.
 */
const coverages = ['inside', 'outside', 'outside-attested'] as const
type Coverage = (typeof coverages)[number]

/**
 * The maker of the key that requested the response, according to the host's registration. `client`: the host received
 * only a digest, never the secret. `host`: the host minted the key and can impersonate its client.
 */
const keyMakers = ['client', 'host'] as const
type KeyMaker = (typeof keyMakers)[number]

/** Requests a receipt, with value `1`. In a response that is not a stream, contains the receipt with its salt. */
export const receiptHeader = 'X-Strongroom-Receipt'

/** The salt of a response that does not contain its receipt. */
export const saltHeader = 'X-Strongroom-Receipt-Salt'

const digestBytes = 32
export const saltBytes = 32
const textBytesMax = 1024
export const receiptLimits: CborLimits = { sizeBytesMax: 16 * 1024, depthMax: 1 }

/** All fields of a claim. Counts are safe unsigned integers. */
const CLAIM_FIELDS = {
  format: 'format',
  requestId: 'text',
  keyMadeBy: 'keyMaker',
  model: 'text',
  /** Name of the upstream that served the response, from the gateway's configuration. */
  upstream: 'text',
  coverage: 'coverage',
  /** SHA-256 of salt and request body (`requestDigest` of response-digest.ts). */
  requestDigest: 'digest',
  /** The chain over the response's events (`createResponseChain`). */
  answerDigest: 'digest',
  eventCount: 'count',
  sizeBytes: 'count',
  promptTokens: 'count',
  completionTokens: 'count',
  /** Milliseconds since 1970. */
  issuedAt: 'count',
  /** Digest of the gateway's keys, as in its attestation receipt. */
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

/** Encodes a claim. Throws Malformed if a value has the wrong type or length. */
export function encodeClaim(claim: ResponseClaim): Uint8Array {
  const source: Readonly<Record<string, unknown>> = { ...claim, format: responseFormat }
  return encodeCbor(new Map(claimFieldNames.map(name => [name, checkedField(name, source[name])])))
}

/**
 * Returns the bytes that both keys sign. ML-DSA's context is empty: the prefix separates these messages from all
 * others.
 */
export function signedBytesOf(claimBytes: Uint8Array): Uint8Array {
  return concat(prefix, claimBytes)
}

/** Returns the receipt's text. Throws Malformed if a signature has the wrong length. */
export function encodeResponseReceipt(claimBytes: Uint8Array, signatures: HybridSignature): string {
  const { ed25519, mldsa65 } = signatures
  const map: CborMap = new Map([
    ['claim', claimBytes],
    ['ed25519', sized(ed25519, SIGNATURE_BYTES.ed25519, 'ed25519')],
    ['mldsa65', sized(mldsa65, SIGNATURE_BYTES.mldsa65, 'mldsa65')],
  ])
  return toBase64Url(encodeCbor(map))
}

/** Joins a receipt and its salt, as sent in a response. */
export function carriedReceipt(receipt: string, salt: Uint8Array): string {
  return `${receipt}.${toBase64Url(salt)}`
}

export const commentStart = ': strongroom-receipt '

/** Returns the line of a stream that contains the receipt. Clients ignore comments (WHATWG HTML, section 9.2.6). */
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
