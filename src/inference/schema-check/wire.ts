// Messages between the gateway and a schema child over stdin and stdout: bounded frames that begin with their length.
// Pure. A job is its owner, its scope, the schema's text and the contents to check; without contents the schema is only
// compiled. A reply is one JSON object.

import { invalidRequest, isObject, type JsonObject } from '../json-text.ts'

export type Job = {
  /** The key whose share of the memory the compiled schema uses. */
  readonly owner: string
  /** Only jobs of one scope share compiled schemas, so that the time of a job reveals nothing about another scope. */
  readonly scope: string
  readonly schema: string
  readonly contents: readonly string[]
}

export type Reply =
  /** Sent once, without a job: the child is confined and accepts jobs. */
  | { readonly verdict: 'ready' }
  /** The schema is compiled, and all contents are valid. */
  | { readonly verdict: 'valid' }
  | { readonly verdict: 'not_json' }
  | { readonly verdict: 'violated' }
  /** The message goes to the client, after `The schema of response_format `. */
  | { readonly verdict: 'refused'; readonly message: string }

export const schemaCharsMax = 262_144
/** Bound of all contents of one job. */
export const contentCharsMax = 8_388_608
/** UTF-8 has at most three bytes per UTF-16 unit; the rest is for lengths. */
export const jobBytesMax = 3 * (schemaCharsMax + contentCharsMax) + 65_536
export const replyBytesMax = 4_096
const messageCharsMax = 512

/** Encodes a job: length, number of texts, and each text with its own length; numbers are u32, little-endian. */
export function encodeJob({ owner, scope, schema, contents }: Job): Uint8Array<ArrayBuffer> {
  const texts = [owner, scope, schema, ...contents].map(text => encoder.encode(text))
  const bytes = new Uint8Array(texts.reduce((sum, text) => sum + 4 + text.length, 8))
  const view = new DataView(bytes.buffer)
  view.setUint32(0, bytes.length - 4, true)
  view.setUint32(4, texts.length, true)
  let at = 8
  for (const text of texts) {
    view.setUint32(at, text.length, true)
    bytes.set(text, at + 4)
    at += 4 + text.length
  }
  return bytes
}

/** Decodes a job. `bytes`: without the length. Throws if they are invalid. */
export function decodeJob(bytes: Uint8Array): Job {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const count = view.getUint32(0, true)
  const texts: string[] = []
  let at = 4
  for (let n = 0; n < count; n += 1) {
    const end = at + 4 + view.getUint32(at, true)
    if (end > bytes.length) throw new RangeError('a text is longer than its frame')
    texts.push(decoder.decode(bytes.subarray(at + 4, end)))
    at = end
  }
  const [owner, scope, schema, ...contents] = texts
  if (owner === undefined || scope === undefined || schema === undefined || at !== bytes.length)
    throw new RangeError('not a job')
  return { owner, scope, schema, contents }
}

export function encodeReply(reply: Reply): Uint8Array<ArrayBuffer> {
  const short = reply.verdict === 'refused' ? { ...reply, message: reply.message.slice(0, messageCharsMax) } : reply
  const text = encoder.encode(JSON.stringify(short))
  const bytes = new Uint8Array(4 + text.length)
  new DataView(bytes.buffer).setUint32(0, text.length, true)
  bytes.set(text, 4)
  return bytes
}

/** Returns the whole reply in `bytes`; null while it is incomplete. Throws on a protocol violation. */
export function decodeReply(bytes: Uint8Array): Reply | null {
  if (bytes.length < 4) return null
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true)
  if (length > replyBytesMax || bytes.length > 4 + length) throw new RangeError('not a reply')
  if (bytes.length < 4 + length) return null
  const value: unknown = JSON.parse(decoder.decode(bytes.subarray(4)))
  if (!isObject(value)) throw new TypeError('not a reply')
  const { verdict, message } = value
  if (verdict === 'ready' || verdict === 'valid' || verdict === 'not_json' || verdict === 'violated') return { verdict }
  if (verdict !== 'refused' || typeof message !== 'string' || message.length > messageCharsMax) {
    throw new TypeError('not a reply')
  }
  return { verdict, message }
}

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Returns the JSON of a schema. Throws Fault invalid_request if it is longer than `schemaCharsMax`. */
export function schemaText(schema: JsonObject): string {
  // Counted first, because writing a body of megabytes takes long.
  if (charsOf(schema, schemaCharsMax) > schemaCharsMax) throw tooLong()
  const text = JSON.stringify(schema)
  if (text.length > schemaCharsMax) throw tooLong()
  return text
}

/** Returns a lower bound of the JSON text's length, at least one per value. Stops soon after `charsMax`. */
function charsOf(value: unknown, charsMax: number): number {
  if (typeof value === 'string') return value.length + 1
  let sum = 1
  if (Array.isArray(value)) {
    for (const item of value) {
      sum += charsOf(item, charsMax - sum)
      if (sum > charsMax) return sum
    }
  } else if (isObject(value)) {
    for (const name in value) {
      sum += name.length + charsOf(value[name], charsMax - sum)
      if (sum > charsMax) return sum
    }
  }
  return sum
}

function tooLong() {
  return invalidRequest(`The schema of response_format is longer than ${schemaCharsMax} characters.`)
}
