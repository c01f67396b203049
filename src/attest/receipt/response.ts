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

import { concat, fromBase64Url, fromUtf8, toBase64Url, utf8 } from '../../base/bytes.ts'
import { type CborLimits, type CborMap, type CborValue, decodeCbor, encodeCbor } from '../encoding/cbor.ts'
import { wellFormed } from '../malformed.ts'
import { type HybridSignature, SIGNATURE_BYTES } from './public-keys.ts'

export const responseFormat = 'strongroom/response/v4'
const earlierFormats: Readonly<Record<string, string>> = {
  'strongroom/response/v1': 'does not say who answered',
  'strongroom/response/v2': 'has no salt',
  'strongroom/response/v3': 'does not say who made the key that asked',
}

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
const limits: CborLimits = { sizeBytesMax: 16 * 1024, depthMax: 1 }
const saltLengthMax = Math.ceil((saltBytes * 4) / 3)
/** Characters of base64url, the dot and the salt included; a receipt has about 5,000. */
const receiptLengthMax = Math.ceil((limits.sizeBytesMax * 4) / 3) + 1 + saltLengthMax

/** Every field of a claim. Counts are safe unsigned integers. */
const CLAIM_FIELDS = {
  format: 'format',
  requestId: 'text',
  keyMadeBy: 'keyMaker',
  model: 'text',
  /** Name of the upstream that answered, from the gateway's configuration. */
  upstream: 'text',
  coverage: 'coverage',
  /** SHA-256 of salt and request body, `requestDigest` of response-sign.ts. */
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

export type DecodedResponseReceipt = {
  readonly claim: ResponseClaim
  /** The exact bytes of the claim. */
  readonly claimBytes: Uint8Array
  readonly signatures: HybridSignature
}

/** Throws Malformed on a value of the wrong type or length. */
export function encodeClaim(claim: ResponseClaim): Uint8Array {
  const source: Readonly<Record<string, unknown>> = { ...claim, format: responseFormat }
  return encodeCbor(new Map(fieldNames.map(name => [name, checked(name, source[name])])))
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

type CarriedReceipt = {
  readonly receipt: string
  /** Null: it came without. */
  readonly salt: Uint8Array | null
}

/** Takes apart what a response bears, or what was fetched later. Throws Malformed on a salt of another length. */
export function readCarriedReceipt(text: string): CarriedReceipt {
  const at = text.indexOf('.')
  return at === -1 ? { receipt: text, salt: null } : { receipt: text.slice(0, at), salt: readSalt(text.slice(at + 1)) }
}

/** From base64url. Throws Malformed. */
export function readSalt(text: string): Uint8Array {
  const salt = text.length <= saltLengthMax ? fromBase64Url(text) : null
  wellFormed(salt !== null, `response receipt: the salt is not ${saltBytes} bytes of base64url`)
  return sized(salt, saltBytes, 'salt')
}

/** Throws Malformed on anything that `encodeResponseReceipt` would not have written. */
export function decodeResponseReceipt(text: string): DecodedResponseReceipt {
  wellFormed(text.length <= receiptLengthMax, 'response receipt: too long')
  const bytes = fromBase64Url(text)
  wellFormed(bytes !== null, 'response receipt: not base64url')
  const map = mapOf(decodeCbor(bytes, limits), ['claim', 'ed25519', 'mldsa65'], 'response receipt')
  const claimBytes = map.get('claim')
  wellFormed(claimBytes instanceof Uint8Array, 'response receipt: claim')
  const decoded = decodeCbor(claimBytes, limits)
  checkFormat(decoded)
  const fields = mapOf(decoded, fieldNames, 'response claim')
  const entries = fieldNames.map(name => [name, checked(name, fields.get(name))] as const)
  const { format: _, ...claim } = Object.fromEntries(entries)
  return {
    // Both the type and this object follow the table.
    claim: claim as ResponseClaim,
    claimBytes,
    signatures: {
      ed25519: sized(map.get('ed25519'), SIGNATURE_BYTES.ed25519, 'ed25519'),
      mldsa65: sized(map.get('mldsa65'), SIGNATURE_BYTES.mldsa65, 'mldsa65'),
    },
  }
}

const commentStart = ': strongroom-receipt '

/** The line of a stream that carries the receipt. Clients pass over comments (WHATWG HTML, section 9.2.6). */
export function receiptComment(receipt: string): string {
  return `${commentStart}${receipt}\n\n`
}

export type SplitResponse = {
  /** The body without the receipt's own line and the empty line after it: the receipt covers these bytes. */
  readonly body: Uint8Array
  /** The receipt in the stream; null where there is none. */
  readonly receipt: string | null
}

/** Ends of streams, of OpenAI's APIs and the Messages API. The receipt covers them, although they come after it. */
const streamEnds = ['data: [DONE]\n\n', 'event: message_stop\ndata: {"type":"message_stop"}\n\n']

/** Splits a saved body. Throws Malformed when there are several receipts, or more than the stream's end after one. */
export function splitResponse(body: Uint8Array): SplitResponse {
  const start = utf8(commentStart)
  const at = lineStartsOf(body, start)
  const [first] = at
  if (first === undefined) return { body, receipt: null }
  wellFormed(at.length === 1, 'response: more than one receipt')
  const lineEnd = body.indexOf(0x0a, first)
  wellFormed(lineEnd !== -1, 'response: it ends within its receipt')
  const rest = asciiOf(body.subarray(lineEnd))
  wellFormed(
    streamEnds.some(end => rest === `\n\n${end}`),
    'response: the receipt is not right before the end',
  )
  const receipt = asciiOf(body.subarray(first + start.length, lineEnd))
  return { body: concat(body.subarray(0, first), body.subarray(lineEnd + 2)), receipt }
}

/** Where lines begin with this text; no more than two of them. */
function lineStartsOf(body: Uint8Array, text: Uint8Array): number[] {
  const found: number[] = []
  for (let at = 0; at !== -1 && found.length < 2; ) {
    if (text.every((byte, i) => body[at + i] === byte)) found.push(at)
    const next = body.indexOf(0x0a, at)
    at = next === -1 ? -1 : next + 1
  }
  return found
}

function asciiOf(bytes: Uint8Array): string {
  wellFormed(bytes.length <= receiptLengthMax, 'response: too much after the receipt begins')
  wellFormed(
    bytes.every(byte => byte < 0x80),
    'response: a receipt that is not ASCII',
  )
  return fromUtf8(bytes)
}

const prefix = utf8(`${responseFormat}\0`)
const fieldNames = Object.keys(CLAIM_FIELDS) as (keyof typeof CLAIM_FIELDS)[]

/** Before the fields: those of another version are others. */
function checkFormat(claim: CborValue): void {
  const format = claim instanceof Map ? claim.get('format') : undefined
  const lacks = typeof format === 'string' && Object.hasOwn(earlierFormats, format) ? earlierFormats[format] : undefined
  wellFormed(
    lacks === undefined,
    `response claim: its format is ${format}, which ${lacks}; only ${responseFormat} is read`,
  )
  wellFormed(format === responseFormat, `response claim: its format is not ${responseFormat}`)
}

function mapOf(value: CborValue, names: readonly string[], what: string): CborMap {
  wellFormed(value instanceof Map && value.size === names.length, `${what}: missing or unknown fields`)
  for (const name of names) wellFormed(value.has(name), `${what}: no ${name}`)
  return value
}

function checked(name: keyof typeof CLAIM_FIELDS, value: unknown): CborValue {
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

function sized(value: unknown, sizeBytes: number, name: string): Uint8Array {
  wellFormed(value instanceof Uint8Array && value.length === sizeBytes, `response receipt: ${name}`)
  return value
}
