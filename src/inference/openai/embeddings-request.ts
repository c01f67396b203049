// A client's request for embeddings, and what of it goes to the upstream. Pure. Fault invalid_request.

import type { Engine } from '../../config/upstream.ts'
import { invalidField, type JsonObject, membersOf } from '../json-text.ts'
import { type RequestSource, readSource } from './request.ts'
import { cacheSaltField, cacheSaltProblem, integer, isCacheKeptApart, word } from './request-fields.ts'
import { hasCacheOfItsOwn, type UpstreamBody, type UpstreamKind } from './upstream-body.ts'

export type EmbeddingsRequest = {
  readonly model: string
  readonly inputCount: number
  /** Encoding of the response. The gateway always asks upstreams for base64. */
  readonly encoding: 'float' | 'base64'
  /** Null: as many as the model gives. */
  readonly dimensions: number | null
  /** The client's own; null if it has none. */
  readonly cacheSalt: string | null
}

export type ParsedEmbeddingsRequest = { readonly request: EmbeddingsRequest; readonly source: RequestSource }

/** OpenAI's own bound. */
const inputsMax = 2_048
/** More than any model gives. */
export const dimensionsMax = 16_384
const tokenMax = 2 ** 32 - 1

/** Fault invalid_request. The caller bounds the length. */
export function parseEmbeddingsRequest(bytes: Uint8Array): ParsedEmbeddingsRequest {
  return parseEmbeddingsSource(readSource(bytes))
}

/** Fault invalid_request. */
export function parseEmbeddingsSource(source: RequestSource): ParsedEmbeddingsRequest {
  const { model, input, encoding_format: encoding, dimensions, user, cache_salt: cacheSalt } = source.body
  if (typeof model !== 'string' || model === '') throw invalidField('model', 'must be the id of a model.')
  const inputCount = countInputs(input)
  if (!isNone(encoding) && encoding !== 'float' && encoding !== 'base64') {
    throw invalidField('encoding_format', 'must be float or base64.')
  }
  check('dimensions', dimensions, integer(1, dimensionsMax))
  check('user', user, word(256))
  check(cacheSaltField, cacheSalt, cacheSaltProblem)
  const request: EmbeddingsRequest = {
    model,
    inputCount,
    encoding: encoding ?? 'float',
    dimensions: typeof dimensions === 'number' ? dimensions : null,
    cacheSalt: typeof cacheSalt === 'string' ? cacheSalt : null,
  }
  return { request, source }
}

/** Null counts as absent, as with OpenAI. */
function isNone(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

function check(name: string, value: unknown, problemOf: (value: unknown) => string | null): void {
  const problem = isNone(value) ? null : problemOf(value)
  if (problem !== null) throw invalidField(name, problem)
}

/** A text, a list of texts, a list of tokens, or a list of those. */
function countInputs(input: unknown): number {
  if (typeof input === 'string') {
    if (input === '') throw invalidField('input', 'must not be empty.')
    return 1
  }
  if (!Array.isArray(input) || input.length === 0) throw invalidField('input', 'must be a text or a list.')
  if (isTokens(input)) return 1
  if (input.length > inputsMax) throw invalidField('input', `must be a list of at most ${inputsMax}.`)
  const isTexts = typeof input[0] === 'string'
  const wrong = input.findIndex(item => (isTexts ? typeof item !== 'string' || item === '' : !isTokens(item)))
  if (wrong === -1) return input.length
  throw invalidField(
    `input[${wrong}]`,
    isTexts ? 'must be a text that is not empty.' : 'must be a text, or a list of tokens.',
  )
}

function isTokens(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every(token => Number.isInteger(token) && token >= 0 && token <= tokenMax)
  )
}

const SENT: ReadonlySet<string> = new Set(['input', 'dimensions', 'user'])
const KNOWN: ReadonlySet<string> = new Set([...SENT, 'model', 'encoding_format'])
/** The checked members as the client wrote them, but for the model: a key may have a name of its own for it. */
export function embeddingsUpstreamBody(
  { request, source: { text, body } }: ParsedEmbeddingsRequest,
  { engine, cacheSalt }: UpstreamKind,
): UpstreamBody {
  const kept = membersOf(text).filter(({ name }) => SENT.has(name) && !isNone(body[name]))
  // Embeddings may use the prompt cache, too.
  const salt = hasCacheOfItsOwn(engine) ? [`"cache_salt":${JSON.stringify(cacheSalt())}`] : []
  const model = `"model":${JSON.stringify(request.model)}`
  const members = [model, ...kept.map(member => member.text), '"encoding_format":"base64"', ...salt]
  return { text: `{${members.join(',')}}`, ignored: namesBeyond(body, engine) }
}

/** Whether an upstream may get the field. */
export function isEmbeddingsField(name: string): boolean {
  return KNOWN.has(name)
}

function namesBeyond(body: JsonObject, engine: Engine): string[] {
  return Object.keys(body).filter(name => !KNOWN.has(name) && !(name === cacheSaltField && isCacheKeptApart(engine)))
}
