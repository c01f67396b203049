// Converts an engine's embeddings into OpenAI's: checked number by number, written in the client's encoding. Pure. A
// response may contain millions of numbers, so the work yields in between. Schema: OpenAI's published API description,
// CreateEmbeddingResponse. text-embeddings-inference answers with a list of lists of numbers, and counts in a header.

import { Fault } from '../../../base/fault.ts'
import type { Turns } from '../../../base/work/turns.ts'
import type { TokensSource } from '../../../store/directory/usage/usage.table.ts'
import { UpstreamFault } from '../../failure.ts'
import { isObject } from '../../json-text.ts'
import type { Tokens } from '../../types.ts'
import { malformed, parseUpstreamJson } from '../upstream-json.ts'
import {
  countedUsage,
  isPlausible,
  type PooledCounts,
  pooledUsage,
  tokensOf,
  type UsageBounds,
  withoutCached,
} from '../usage.ts'
import { dimensionsMax, type EmbeddingsRequest, type PooledRequest } from './request.ts'

/** Numbers as an engine wrote them, or decoded from base64. */
type Vector = readonly number[] | Float32Array

export type Embeddings = {
  readonly vectors: readonly Vector[]
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
}

/** Numbers checked before yielding: 2 ms. */
const checkedNumbersMax = 131_072
/** Numbers written as decimals before yielding: 2 ms. */
const writtenNumbersMax = 8_192
/** Bound of a response with decimals instead of base64: JSON.parse takes 45 ms, ten times as long as for base64. */
const decimalCharsMax = 8_388_608
/** Bound of one embedding in a response. */
const embeddingBytesMax = 524_288
/** Bound of everything else in a response. */
const frameBytesMax = 65_536
/** Tokens that an engine adds to each input and to each request. */
const inputTokensAdded = 16
const requestTokensAdded = 4_096
/** Default if the configuration sets no bound. */
const contextTokensMax = 16_777_216

/** Returns the bound of an upstream's response in bytes; a longer one is the upstream's own fault. */
export function embeddingsBytesMax({ inputCount }: EmbeddingsRequest): number {
  return inputCount * embeddingBytesMax + frameBytesMax
}

export function embeddingsUsageBounds(
  { inputCount, ...request }: PooledRequest,
  { bodyBytes, contextTokens }: { readonly bodyBytes: number; readonly contextTokens: number | null },
): UsageBounds {
  const added = inputCount * inputTokensAdded + requestTokensAdded
  const bytes = bodyBytes + ('repeatedBytes' in request ? request.repeatedBytes : 0)
  const promptTokensMax = Math.min(inputCount * (contextTokens ?? contextTokensMax), bytes + added)
  return { promptTokensMax, completionTokensMax: 0 }
}

/** Returns the fault of a response that is too large because the client sent too many inputs. */
export function tooManyInputs(): Fault {
  const message =
    'The embeddings of these inputs are too large for one response: send fewer inputs, or set encoding_format to base64.'
  return new Fault('invalid_request', message, { param: 'input' })
}

/**
 * Parses a response. Throws UpstreamFault malformed or wrong_dimensions; Fault invalid_request if there are more inputs
 * than a response has room for.
 */
export function* parseEmbeddings(text: string, request: EmbeddingsRequest, counts: PooledCounts): Turns<Embeddings> {
  if (text.length > decimalCharsMax && /^\s*\[|"embedding"\s*:\s*\[/.test(text)) throw tooManyInputs()
  const value = parseUpstreamJson(text)
  const items = isObject(value) ? value.data : value
  if (!Array.isArray(items) || items.length !== request.inputCount) throw malformed()
  const vectors: Vector[] = []
  let inTurn = 0
  for (const [at, item] of items.entries()) {
    if (isObject(item) && (item.index ?? at) !== at) throw malformed()
    const vector = vectorOf(isObject(item) ? item.embedding : item)
    if (vector.length !== (vectors[0] ?? vector).length) throw malformed()
    vectors.push(vector)
    inTurn += vector.length
    if (inTurn < checkedNumbersMax) continue
    inTurn = 0
    yield
  }
  if (request.dimensions !== null && vectors[0]?.length !== request.dimensions) {
    throw new UpstreamFault('wrong_dimensions')
  }
  const given = isObject(value) ? pooledUsage(value.usage) : countedUsage(counts)
  const isReported = given !== null && isPlausible(given, counts.bounds, text.length)
  return {
    vectors,
    tokens: isReported ? tokensOf(withoutCached(given)) : { prompt: counts.promptEstimate, completion: 0 },
    tokensSource: isReported ? 'reported' : given === null ? 'estimated' : 'implausible',
  }
}

/**
 * Returns the vector. Throws UpstreamFault malformed unless it has a valid number of values, each finite as a 32-bit
 * float.
 */
function vectorOf(embedding: unknown): Vector {
  const vector = typeof embedding === 'string' ? fromBase64(embedding) : embedding
  const isVector = Array.isArray(vector) || vector instanceof Float32Array
  if (!isVector || vector.length === 0 || vector.length > dimensionsMax) throw malformed()
  // A plain loop, because it runs for each of millions of numbers.
  for (let at = 0; at < vector.length; at += 1) {
    const number: unknown = vector[at]
    if (typeof number !== 'number' || !Number.isFinite(Math.fround(number))) throw malformed()
  }
  return vector
}

const bytesOfNumber = Float32Array.BYTES_PER_ELEMENT

/** Decodes 32-bit floats, little-endian, as OpenAI encodes them. */
function fromBase64(text: string): Float32Array {
  if (text.length > Math.ceil((dimensionsMax * bytesOfNumber) / 3) * 4) throw malformed()
  let bytes: Uint8Array
  try {
    bytes = Uint8Array.fromBase64(text, { lastChunkHandling: 'strict' })
  } catch {
    throw malformed()
  }
  // The decoder ignores white space.
  const isPlain = text.length === Math.ceil(bytes.length / 3) * 4
  if (!isPlain || bytes.length % bytesOfNumber !== 0) throw malformed()
  return new Float32Array(bytes.slice().buffer)
}

export type EmbeddingsWriter = {
  /** Maximum number of characters of the whole text. */
  readonly charsMax: number
  /** Takes the text in order. All of it is ASCII except the model's id. */
  readonly take: (piece: string) => void
}

/** Writes the response's text. Throws Fault invalid_request if there are more inputs than a response has room for. */
export function* writeEmbeddings(
  { vectors, tokens: { prompt } }: Embeddings,
  { model, encoding }: EmbeddingsRequest,
  { charsMax, take }: EmbeddingsWriter,
): Turns<string> {
  const pieces: string[] = []
  let chars = 0
  let inTurn = 0
  const write = (piece: string) => {
    chars += piece.length
    if (chars > charsMax) throw tooManyInputs()
    pieces.push(piece)
    take(piece)
  }
  write('{"object":"list","data":[')
  for (const [index, vector] of vectors.entries()) {
    const embedding = encoding === 'base64' ? `"${toBase64(vector)}"` : toDecimals(vector)
    write(`${index === 0 ? '' : ','}{"object":"embedding","index":${index},"embedding":${embedding}}`)
    inTurn += vector.length
    if (inTurn < (encoding === 'base64' ? checkedNumbersMax : writtenNumbersMax)) continue
    inTurn = 0
    yield
  }
  const usage = { prompt_tokens: prompt, total_tokens: prompt }
  write(`],"model":${JSON.stringify(model)},"usage":${JSON.stringify(usage)}}`)
  return pieces.join('')
}

function toBase64(vector: Vector): string {
  return new Uint8Array(new Float32Array(vector).buffer).toBase64()
}

/** Writes decimals. Nine digits distinguish any two 32-bit floats. */
function toDecimals(vector: Vector): string {
  if (!(vector instanceof Float32Array)) return JSON.stringify(vector)
  const decimals: string[] = []
  // The result is also in JSON's number format. Shortening by Number and JSON.stringify takes four times as long.
  for (const value of vector) decimals.push(value.toPrecision(9))
  return `[${decimals.join(',')}]`
}
