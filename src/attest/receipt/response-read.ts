// Reads response receipts (form: response.ts), and extracts them from saved responses. Pure.

import { concat, fromBase64Url, fromUtf8, utf8 } from '../../base/bytes.ts'
import { type CborMap, type CborValue, decodeCbor } from '../encoding/cbor.ts'
import { wellFormed } from '../malformed.ts'
import { type HybridSignature, SIGNATURE_BYTES } from './public-keys.ts'
import {
  checkedField,
  claimFieldNames,
  commentStart,
  type ResponseClaim,
  receiptLimits,
  responseFormat,
  saltBytes,
  sized,
} from './response.ts'

const earlierFormats: Readonly<Record<string, string>> = {
  'strongroom/response/v1': 'does not say who answered',
  'strongroom/response/v2': 'has no salt',
  'strongroom/response/v3': 'does not say who made the key that asked',
}
const saltLengthMax = Math.ceil((saltBytes * 4) / 3)
/** Limit in characters of base64url, including the dot and the salt. A receipt has about 5,000. */
const receiptLengthMax = Math.ceil((receiptLimits.sizeBytesMax * 4) / 3) + 1 + saltLengthMax

export type DecodedResponseReceipt = {
  readonly claim: ResponseClaim
  /** The claim's exact bytes. */
  readonly claimBytes: Uint8Array
  readonly signatures: HybridSignature
}

type CarriedReceipt = {
  readonly receipt: string
  /** Null if the receipt has no salt. */
  readonly salt: Uint8Array | null
}

/**
 * Splits the text from a response, or fetched later, into receipt and salt. Throws Malformed if the salt has the wrong
 * length.
 */
export function readCarriedReceipt(text: string): CarriedReceipt {
  const at = text.indexOf('.')
  return at === -1 ? { receipt: text, salt: null } : { receipt: text.slice(0, at), salt: readSalt(text.slice(at + 1)) }
}

/** Decodes a salt from base64url. Throws Malformed. */
export function readSalt(text: string): Uint8Array {
  const salt = text.length <= saltLengthMax ? fromBase64Url(text) : null
  wellFormed(salt !== null, `response receipt: the salt is not ${saltBytes} bytes of base64url`)
  return sized(salt, saltBytes, 'salt')
}

/** Decodes a receipt. Throws Malformed for anything that `encodeResponseReceipt` would not have written. */
export function decodeResponseReceipt(text: string): DecodedResponseReceipt {
  wellFormed(text.length <= receiptLengthMax, 'response receipt: too long')
  const bytes = fromBase64Url(text)
  wellFormed(bytes !== null, 'response receipt: not base64url')
  const map = mapOf(decodeCbor(bytes, receiptLimits), ['claim', 'ed25519', 'mldsa65'], 'response receipt')
  const claimBytes = map.get('claim')
  wellFormed(claimBytes instanceof Uint8Array, 'response receipt: claim')
  const decoded = decodeCbor(claimBytes, receiptLimits)
  checkFormat(decoded)
  const fields = mapOf(decoded, claimFieldNames, 'response claim')
  const entries = claimFieldNames.map(name => [name, checkedField(name, fields.get(name))] as const)
  const { format: _, ...claim } = Object.fromEntries(entries)
  return {
    // Both the type and this object are derived from the table.
    claim: claim as ResponseClaim,
    claimBytes,
    signatures: {
      ed25519: sized(map.get('ed25519'), SIGNATURE_BYTES.ed25519, 'ed25519'),
      mldsa65: sized(map.get('mldsa65'), SIGNATURE_BYTES.mldsa65, 'mldsa65'),
    },
  }
}

export type SplitResponse = {
  /** The body without the receipt's own line and the empty line after it. The receipt covers exactly these bytes. */
  readonly body: Uint8Array
  /** The receipt in the stream; null if the stream contains none. */
  readonly receipt: string | null
}

/** Ends of streams in OpenAI's APIs and the Messages API. The receipt precedes them, but covers them. */
const streamEnds = ['data: [DONE]\n\n', 'event: message_stop\ndata: {"type":"message_stop"}\n\n']

/**
 * Splits a saved body. Throws Malformed for several receipts, or for anything but the stream's end after the receipt.
 */
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

/** Returns the offsets of lines that begin with this text, at most two. */
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

/** Checks the format before the fields, because other versions have other fields. */
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
