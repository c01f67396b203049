// A client's request for a chat or text completion, checked as far as the gateway acts on its fields. Pure. The
// upstream's request: request-fields.ts and upstream-body.ts.

import { fromUtf8 } from '../../base/bytes.ts'
import { invalidField, invalidRequest, isObject, type JsonObject, readJsonText } from '../json-text.ts'
import { checkSchemaBounds, relaxSchema } from '../schema-check/bounds.ts'
import type { CompletionOperation } from '../types.ts'
import { type Constraint, takeConstraint } from './engines/constraints.ts'
import type { ReasoningOrigin } from './engines/reasoning.ts'
import { type ContentNeeds, parseMessages, TEXT_ONLY } from './messages.ts'
import { Repairs, repairedText } from './repairs.ts'
import { checkFields } from './request-fields.ts'
import { callableTools, parseToolChoice, parseTools, strictToolsOf, type ToolChoice } from './tools.ts'

export type ResponseFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: JsonObject }

export type GatewayRequest = {
  readonly operation: CompletionOperation
  /** The client's name for the model; later the model's id, once the key's rules are applied. */
  readonly model: string
  readonly stream: boolean
  /** Whether the client requested the usage chunk. */
  readonly includeUsage: boolean
  /** Whether the client requests padded chunks for its stream; null if it does not choose. */
  readonly includeObfuscation: boolean | null
  /** Names of the tools that the completion may call. */
  readonly tools: ReadonlySet<string>
  /** Names of the tools whose arguments must be a JSON object. */
  readonly strictTools: ReadonlySet<string>
  /** Names of the functions whose calls the client gets as calls of custom tools. */
  readonly customTools: ReadonlySet<string>
  readonly toolChoice: ToolChoice
  readonly format: ResponseFormat
  /** Constraint that cannot be expressed as a `response_format`; null if there is none. */
  readonly constraint: Constraint | null
  /** Origin of the reasoning in messages; null if they have none. */
  readonly reasoning: ReasoningOrigin | null
  /** Number of choices that the completion must have. */
  readonly choiceCount: number
  /** Maximum number of tokens of each choice; null if the client sets no bound. */
  readonly completionTokensMax: number | null
  readonly needs: ContentNeeds
  /** The client's own salt of its prompt cache; null if it has none. */
  readonly cacheSalt: string | null
  /** Names of fields that the check has dropped. */
  readonly ignored: readonly string[]
}

/** A body: its checked text, the parsed value, and its size in bytes. */
export type RequestSource = {
  readonly text: string
  readonly body: JsonObject
  readonly sizeBytes: number
  /** Names of changes that lose nothing a client could have meant, for `x-strongroom-ignored`. */
  readonly changes: readonly string[]
}

export type ParsedRequest = { readonly request: GatewayRequest; readonly source: RequestSource }

/**
 * Enough for 4 MiB written entirely in escapes of six characters; source code has one in twenty to thirty characters.
 */
const escapesMax = Math.ceil(4_194_304 / 6)
export const bodyLimits = { depthMax: 128, namesMax: 32_768, valuesMax: 262_144, escapesMax }
const choicesMax = 128

/** Parses a request. Throws Fault invalid_request. The caller bounds the length. */
export function parseRequest(operation: CompletionOperation, bytes: Uint8Array): ParsedRequest {
  return parseSource(operation, readSource(bytes))
}

/** Checks a request. Throws Fault invalid_request. */
export function parseSource(operation: CompletionOperation, source: RequestSource): ParsedRequest {
  const repairs = new Repairs()
  const request = checkRequest(operation, source.body, repairs)
  const { changed } = repairs
  if (changed === null) return { request, source }
  const changes = changesWith(source, repairs)
  return { request, source: { ...source, text: repairedText(source.text, source.body, changed), changes } }
}

/** Reads any JSON object within bounds. Throws Fault invalid_request. */
export function readSource(bytes: Uint8Array): RequestSource {
  const given = decode(bytes)
  const { text, value: body } = readJsonText(given, bodyLimits)
  if (!isObject(body)) throw invalidRequest('The body must be a JSON object.')
  return { text, body, sizeBytes: bytes.length, changes: text === given ? NONE : HALF_PAIRS }
}

const NONE: readonly string[] = []
/** Name in `x-strongroom-ignored` of a request in which U+FFFD replaces half a surrogate pair. */
const HALF_PAIRS: readonly string[] = ['text.surrogates']

/** Returns the changes of the source and of the check. */
export function changesWith({ changes }: RequestSource, { hasHalfPairs }: Repairs): readonly string[] {
  return hasHalfPairs ? HALF_PAIRS : changes
}

/** Checks a request and changes the body as described in repairs.ts. Throws Fault invalid_request. */
export function checkRequest(
  operation: CompletionOperation,
  body: JsonObject,
  repairs: Repairs = new Repairs(),
): GatewayRequest {
  const model = body.model
  if (typeof model !== 'string' || model === '') throw invalidField('model', 'must be the id of a model.')
  checkFields(operation, body)
  const constraint = takeConstraint(operation, body, repairs)
  const stream = parseFlag(body, 'stream')
  const options = parseStreamOptions(body, stream)
  const { tools, customTools, toolChoice, format, needs, promptCount } =
    operation === 'chat' ? parseChat(body, repairs) : parseText(body)
  const choiceCount = promptCount * parseCount(body.n)
  if (choiceCount > choicesMax) throw invalidField('n', `must be at most ${choicesMax}.`)
  return {
    operation,
    model,
    stream,
    includeUsage: parseOption(options, 'include_usage') ?? false,
    includeObfuscation: parseOption(options, 'include_obfuscation'),
    tools: callableTools(tools, toolChoice),
    strictTools: strictToolsOf(body),
    customTools,
    toolChoice,
    format,
    constraint,
    reasoning: repairs.hasReasoning ? 'client' : null,
    choiceCount,
    completionTokensMax: tokensMaxOf(body),
    needs,
    cacheSalt: typeof body.cache_salt === 'string' ? body.cache_salt : null,
    ignored: repairs.ignored,
  }
}

/** Returns the smaller value of the two names of the bound. Both have been checked. */
function tokensMaxOf({ max_tokens: older, max_completion_tokens: newer }: JsonObject): number | null {
  if (typeof older !== 'number') return typeof newer === 'number' ? newer : null
  return typeof newer === 'number' ? Math.min(older, newer) : older
}

type OperationFields = Pick<GatewayRequest, 'tools' | 'customTools' | 'toolChoice' | 'format' | 'needs'> & {
  readonly promptCount: number
}

function parseChat(body: JsonObject, repairs: Repairs): OperationFields {
  const { names: tools, custom: customTools } = parseTools(body, repairs)
  const needs = parseMessages(body.messages, customTools, repairs)
  refuse(body)
  const toolChoice = parseToolChoice(body.tool_choice, tools)
  const format = parseFormat(body.response_format, repairs)
  return { tools, customTools, toolChoice, format, needs, promptCount: 1 }
}

function parseText(body: JsonObject): OperationFields {
  refuse(body)
  return {
    tools: new Set(),
    customTools: new Set(),
    toolChoice: { kind: 'none' },
    format: { kind: 'text' },
    needs: TEXT_ONLY,
    promptCount: countPrompts(body.prompt),
  }
}

/** Unsupported fields that would change the answer. */
const REFUSED = {
  // The predecessors of `tools`: an engine that supports them could call unchecked functions.
  functions: 'is not supported; use tools and tool_choice.',
  function_call: 'is not supported; use tools and tool_choice.',
  web_search_options: 'is not supported: this gateway does not search; offer a tool of your own.',
  audio: 'is not supported: answers are text; leave it out.',
} as const satisfies Record<string, string>

function refuse(body: JsonObject): void {
  for (const [name, problem] of REFUSALS) if (body[name] !== undefined) throw invalidField(name, problem)
  const { modalities } = body
  if (Array.isArray(modalities) && modalities.some(kind => kind !== 'text')) {
    throw invalidField('modalities', 'must be ["text"]: answers are text.')
  }
}

const REFUSALS = Object.entries(REFUSED)

function decode(bytes: Uint8Array): string {
  let text: string
  try {
    text = fromUtf8(bytes)
  } catch {
    throw invalidRequest('The body is not valid UTF-8.')
  }
  return text.startsWith('\uFEFF') ? text.slice(1) : text
}

function parseFlag(body: JsonObject, name: string): boolean {
  const value = body[name]
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalidField(name, 'must be true or false.')
  return value
}

function parseStreamOptions(body: JsonObject, stream: boolean): JsonObject {
  const options = body.stream_options
  if (options === undefined || options === null) return {}
  if (!stream) throw invalidField('stream_options', 'requires stream: true.')
  if (!isObject(options)) throw invalidField('stream_options', 'must be an object.')
  return options
}

/** Returns the option; null if it is absent. */
function parseOption(options: JsonObject, name: string): boolean | null {
  const value = options[name]
  if (value === undefined || value === null) return null
  if (typeof value === 'boolean') return value
  throw invalidField(`stream_options.${name}`, 'must be true or false.')
}

const schemaPath = 'response_format.json_schema.schema'

function parseFormat(format: unknown, repairs: Repairs): ResponseFormat {
  if (format === undefined || format === null) return { kind: 'text' }
  const type = isObject(format) ? format.type : null
  if (type === 'text' || type === 'json_object') return { kind: type }
  if (!isObject(format) || type !== 'json_schema') {
    throw invalidField('response_format.type', 'must be text, json_object or json_schema.')
  }
  const named = format.json_schema
  if (!isObject(named) || typeof named.name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(named.name)) {
    throw invalidField('response_format.json_schema.name', 'must be 1 to 64 letters, digits, underscores and hyphens.')
  }
  if (named.strict !== true) {
    if (named.schema !== undefined && !isObject(named.schema)) {
      throw invalidField('response_format.json_schema.schema', 'must be an object.')
    }
    if (isObject(named.schema)) {
      for (const keyword of relaxSchema(named.schema)) repairs.note('response_format', `response_format.${keyword}`)
    }
    return { kind: 'text' }
  }
  if (!isObject(named.schema)) throw invalidField('response_format.json_schema.schema', 'must be an object.')
  checkSchemaBounds(named.schema, schemaPath)
  return { kind: 'json_schema', schema: named.schema }
}

/** Counts the prompts: a text, a list of tokens, or a list of such lists. */
function countPrompts(prompt: unknown): number {
  if (typeof prompt === 'string') return 1
  if (!Array.isArray(prompt) || prompt.length === 0) throw invalidField('prompt', 'must be a string or a list.')
  if (isTokens(prompt)) return 1
  if (prompt.every(item => typeof item === 'string') || prompt.every(isTokens)) return prompt.length
  throw invalidField('prompt', 'must hold only strings, only tokens, or only lists of tokens.')
}

function isTokens(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(token => Number.isSafeInteger(token) && token >= 0)
}

function parseCount(n: unknown): number {
  if (n === undefined || n === null) return 1
  if (typeof n !== 'number' || !Number.isInteger(n) || n < 1 || n > choicesMax) {
    throw invalidField('n', `must be a whole number from 1 to ${choicesMax}.`)
  }
  return n
}
