// A client's request for embeddings or for a ranking, and the parts of it that the upstream gets. Pure. Fault
// invalid_request.

import type { Engine } from '../../../config/upstream/kinds.ts'
import { invalidField, type JsonObject, membersOf } from '../../json-text.ts'
import type { Operation, PooledOperation } from '../../types.ts'
import { type RequestSource, readSource } from '../request.ts'
import { cacheSaltField, cacheSaltProblem, integer, isCacheKeptApart, word } from '../request-fields.ts'
import { hasCacheOfItsOwn, type UpstreamBody, type UpstreamKind } from '../upstream-body.ts'

export type EmbeddingsRequest = {
  readonly model: string
  readonly inputCount: number
  /** Encoding of the response. The gateway always requests base64 from upstreams. */
  readonly encoding: 'float' | 'base64'
  /** Null means the model's default. */
  readonly dimensions: number | null
  /** The client's own; null if it has none. */
  readonly cacheSalt: string | null
}

/** Form of rankings that Cohere, Jina and engines use: documents are scored against a query. */
export type RerankRequest = Pick<EmbeddingsRequest, 'model' | 'inputCount' | 'cacheSalt'> & {
  /** Number of results to return. */
  readonly topN: number
  readonly returnsDocuments: boolean
  /** Bytes of the query beyond its first reading, because an engine reads it with each document. */
  readonly repeatedBytes: number
}

export type PooledRequest = EmbeddingsRequest | RerankRequest

export function isRerank(request: PooledRequest): request is RerankRequest {
  return 'topN' in request
}

export function isPooled(operation: Operation): operation is PooledOperation {
  return operation === 'embeddings' || operation === 'rerank'
}

export type ParsedEmbeddingsRequest = { readonly request: EmbeddingsRequest; readonly source: RequestSource }

/** OpenAI's bound. */
const inputsMax = 2_048
/** More than any model has. */
export const dimensionsMax = 16_384
const tokenMax = 2 ** 32 - 1

/** Parses a request. Throws Fault invalid_request. The caller bounds the length. */
export function parseEmbeddingsRequest(bytes: Uint8Array): ParsedEmbeddingsRequest {
  return parseEmbeddingsSource(readSource(bytes))
}

/** Checks a request for embeddings. Throws Fault invalid_request. */
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

/** Checks a request for a ranking. Throws Fault invalid_request. */
export function parseRerankSource({ body }: RequestSource): RerankRequest {
  const { model, query, documents, top_n: topN, return_documents: returns, cache_salt: cacheSalt } = body
  if (typeof model !== 'string' || model === '') throw invalidField('model', 'must be the id of a model.')
  if (typeof query !== 'string' || query === '') throw invalidField('query', 'must be a non-empty string.')
  if (!Array.isArray(documents) || documents.length === 0 || documents.length > inputsMax) {
    throw invalidField('documents', `must be a list of 1 to ${inputsMax} strings.`)
  }
  const wrong = documents.findIndex(document => typeof document !== 'string' || document === '')
  if (wrong !== -1) throw invalidField(`documents[${wrong}]`, 'must be a non-empty string.')
  check('top_n', topN, integer(1, inputsMax))
  check('user', body.user, word(256))
  check(cacheSaltField, cacheSalt, cacheSaltProblem)
  if (!isNone(returns) && typeof returns !== 'boolean') throw invalidField('return_documents', 'must be true or false.')
  return {
    model,
    inputCount: documents.length,
    cacheSalt: typeof cacheSalt === 'string' ? cacheSalt : null,
    topN: typeof topN === 'number' ? topN : documents.length,
    returnsDocuments: returns === true,
    repeatedBytes: (documents.length - 1) * Buffer.byteLength(query),
  }
}

/** Reports whether the value is absent. As with OpenAI, null counts as absent. */
function isNone(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

function check(name: string, value: unknown, problemOf: (value: unknown) => string | null): void {
  const problem = isNone(value) ? null : problemOf(value)
  if (problem !== null) throw invalidField(name, problem)
}

/** Counts the inputs: a text, a list of texts, a list of tokens, or a list of such lists. */
function countInputs(input: unknown): number {
  if (typeof input === 'string') {
    if (input === '') throw invalidField('input', 'must not be empty.')
    return 1
  }
  if (!Array.isArray(input) || input.length === 0) throw invalidField('input', 'must be a string or a list.')
  if (isTokens(input)) return 1
  if (input.length > inputsMax) throw invalidField('input', `must be a list of at most ${inputsMax}.`)
  const isTexts = typeof input[0] === 'string'
  const wrong = input.findIndex(item => (isTexts ? typeof item !== 'string' || item === '' : !isTokens(item)))
  if (wrong === -1) return input.length
  throw invalidField(
    `input[${wrong}]`,
    isTexts ? 'must be a non-empty string.' : 'must be a string, or a list of tokens.',
  )
}

function isTokens(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every(token => Number.isInteger(token) && token >= 0 && token <= tokenMax)
  )
}

type PooledFields = {
  /** Fields that the gateway acts on. */
  readonly own: ReadonlySet<string>
  readonly form: PooledForm
  /** Form of text-embeddings-inference, whose responses have no count of tokens. */
  readonly native: PooledForm
}

/** Form of the upstream's request. */
type PooledForm = {
  /** Appended to the base path of the upstream. */
  readonly path: string
  /** The upstream's names for the fields of the client. */
  readonly sent: ReadonlyMap<string, string>
  /** Members that the gateway adds. */
  readonly added: readonly string[]
  readonly namesModel: boolean
}

/** The gateway itself sorts, cuts and adds documents, because engines differ in all three. */
const FIELDS: Readonly<Record<PooledOperation, PooledFields>> = {
  embeddings: {
    own: new Set(['model', 'encoding_format']),
    form: {
      path: '/embeddings',
      sent: toMap({ input: 'input', dimensions: 'dimensions', user: 'user' }),
      added: ['"encoding_format":"base64"'],
      namesModel: true,
    },
    native: {
      path: '/embed',
      sent: toMap({ input: 'inputs', dimensions: 'dimensions' }),
      added: [],
      namesModel: false,
    },
  },
  rerank: {
    own: new Set(['model', 'top_n', 'return_documents']),
    form: {
      path: '/rerank',
      sent: toMap({ query: 'query', documents: 'documents', user: 'user' }),
      added: ['"return_documents":false'],
      namesModel: true,
    },
    native: {
      path: '/rerank',
      sent: toMap({ query: 'query', documents: 'texts' }),
      added: ['"return_text":false'],
      namesModel: false,
    },
  },
}

function toMap(names: Readonly<Record<string, string>>): ReadonlyMap<string, string> {
  return new Map(Object.entries(names))
}

function formOf(operation: PooledOperation, engine: Engine): PooledForm {
  return FIELDS[operation][engine === 'text-embeddings-inference' ? 'native' : 'form']
}

/**
 * Returns the checked members as the client wrote them, except the model, because a key may use its own name for it.
 */
export function embeddingsUpstreamBody(
  { request, source: { text, body } }: { readonly request: PooledRequest; readonly source: RequestSource },
  { engine, cacheSalt }: UpstreamKind,
): Omit<UpstreamBody, 'changes'> & { readonly path: string } {
  const operation = isRerank(request) ? 'rerank' : 'embeddings'
  const { path, sent, added, namesModel } = formOf(operation, engine)
  const kept = membersOf(text).flatMap(({ name, value, ...member }) => {
    const as = isNone(body[name]) ? undefined : sent.get(name)
    if (as === undefined) return []
    return as === name ? [member.text] : [`${JSON.stringify(as)}:${value}`]
  })
  // Pooled requests may use the prompt cache, too.
  const salt = hasCacheOfItsOwn(engine) ? [`"cache_salt":${JSON.stringify(cacheSalt())}`] : []
  const model = namesModel ? [`"model":${JSON.stringify(request.model)}`] : []
  const members = [...model, ...kept, ...added, ...salt]
  return { path, text: `{${members.join(',')}}`, ignored: namesBeyond(operation, body, engine) }
}

/** Reports whether an upstream or the gateway acts on the field. */
export function isPooledField(operation: PooledOperation, name: string): boolean {
  const { own, form } = FIELDS[operation]
  return form.sent.has(name) || own.has(name)
}

function namesBeyond(operation: PooledOperation, body: JsonObject, engine: Engine): string[] {
  const { sent } = formOf(operation, engine)
  const isLeftOut = (name: string) => !(name === cacheSaltField && isCacheKeptApart(engine))
  return Object.keys(body).filter(name => !sent.has(name) && !FIELDS[operation].own.has(name) && isLeftOut(name))
}
