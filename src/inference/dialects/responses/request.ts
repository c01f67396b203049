// A request of the Responses API as a chat request. Pure. Fault invalid_request.
// Schemas: OpenAI's published API description, CreateResponse. Every field is either in one of these tables or refused.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { FieldNames } from '../../openai/dialect.ts'
import { flagAt, isAbsent, objectAt, presentOf, refuseOthers } from '../fields.ts'
import { chatMessages } from './input.ts'

/**
 * Fields of the request that the response repeats, without instructions and tools, which a stream would have to keep.
 */
export type RequestEcho = {
  readonly format: JsonObject
  readonly max_output_tokens: unknown
  readonly metadata: JsonObject
  readonly parallel_tool_calls: boolean
  readonly reasoning: { readonly effort: unknown; readonly summary: null }
  readonly temperature: unknown
  readonly tool_choice: unknown
  readonly top_logprobs: unknown
  readonly top_p: unknown
}

export type ChatOfResponse = {
  readonly chat: JsonObject
  readonly ignored: readonly string[]
  readonly echo: RequestEcho
}

/** Unsupported fields, with the alternative. */
const REFUSED = {
  background:
    'is not supported: nothing runs on here after its request; leave it out, and take the response as a stream.',
  conversation: 'is not supported: nothing is kept here; send the earlier items in input.',
  previous_response_id: 'is not supported: nothing is kept here; send the earlier items in input.',
  context_management: 'is not supported; shorten input yourself.',
  max_tool_calls: 'is for built-in tools, which are not here; leave it out.',
  prompt: 'is not supported: no prompts are kept here; send instructions and input.',
} as const satisfies Record<string, string>

/** Fields that change nothing in a response. */
const IGNORED = [
  'prompt_cache_key',
  'prompt_cache_options',
  'prompt_cache_retention',
  'safety_identifier',
  'service_tier',
] as const

const TAKEN = [
  ...['model', 'input', 'instructions', 'tools', 'tool_choice', 'parallel_tool_calls', 'text', 'max_output_tokens'],
  ...['temperature', 'top_p', 'top_logprobs', 'include', 'reasoning', 'stream', 'stream_options', 'metadata', 'store'],
  ...['truncation', 'user'],
]
const KNOWN: ReadonlySet<string> = new Set([...TAKEN, ...IGNORED])

/** Names of fields in errors about the chat request. */
export const RESPONSE_NAMES = {
  messages: 'input',
  max_tokens: 'max_output_tokens',
  reasoning_effort: 'reasoning.effort',
  logprobs: 'include',
  response_format: 'text.format',
  'response_format.json_schema': 'text.format',
} as const satisfies Record<string, string>

export function chatOfResponse(body: JsonObject, names: FieldNames | null): ChatOfResponse {
  refuse(body)
  const ignored: string[] = IGNORED.filter(name => !isAbsent(body[name]))
  if (flagAt(body.store, 'store') === true) ignored.push('store')
  const format = formatOf(body.text, ignored)
  const effort = effortOf(body.reasoning, ignored)
  const choice = choiceOf(body.tool_choice)
  const streamOptions = objectAt(body.stream_options, 'stream_options')
  if (streamOptions !== null) refuseOthers(streamOptions, 'stream_options', new Set(['include_obfuscation']))
  const { max_output_tokens, temperature, top_p, top_logprobs, parallel_tool_calls } = body
  const asksLogprobs = includesLogprobs(body.include) || (typeof top_logprobs === 'number' && top_logprobs > 0)
  const chat = presentOf({
    model: body.model,
    messages: chatMessages(body, names),
    tools: toolsOf(body.tools, names),
    tool_choice: choice,
    parallel_tool_calls,
    response_format: format === null ? null : chatFormat(format),
    // Not max_completion_tokens: engines that do not know that name would generate without a bound.
    max_tokens: max_output_tokens,
    temperature,
    top_p,
    logprobs: asksLogprobs ? true : null,
    top_logprobs: asksLogprobs ? top_logprobs : null,
    reasoning_effort: effort,
    user: body.user,
    stream: body.stream,
    stream_options: streamOptions,
  })
  const echo: RequestEcho = {
    format: format ?? { type: 'text' },
    max_output_tokens: max_output_tokens ?? null,
    metadata: metadataOf(body.metadata),
    parallel_tool_calls: parallel_tool_calls !== false,
    reasoning: { effort, summary: null },
    temperature: temperature ?? null,
    tool_choice: body.tool_choice ?? 'auto',
    top_logprobs: top_logprobs ?? 0,
    top_p: top_p ?? null,
  }
  return { chat, ignored, echo }
}

function refuse(body: JsonObject): void {
  for (const [name, problem] of Object.entries(REFUSED)) {
    if (!isAbsent(body[name]) && body[name] !== false) throw invalidField(name, problem)
  }
  const { background: _, ...rest } = body
  refuseOthers(rest, '', KNOWN)
  if (!isAbsent(body.truncation) && body.truncation !== 'disabled') {
    throw invalidField('truncation', 'must be "disabled": nothing of input is left out here.')
  }
}

const metadataMax = 16
const metadataNameCharsMax = 64
const metadataCharsMax = 512

function metadataOf(metadata: unknown): JsonObject {
  const pairs = objectAt(metadata, 'metadata') ?? {}
  const isGood = ([name, value]: [string, unknown]) =>
    name.length <= metadataNameCharsMax && typeof value === 'string' && value.length <= metadataCharsMax
  const entries = Object.entries(pairs)
  if (entries.length <= metadataMax && entries.every(isGood)) return pairs
  throw invalidField(
    'metadata',
    `must be at most ${metadataMax} texts of at most ${metadataCharsMax} characters, with names of at most ${metadataNameCharsMax}.`,
  )
}

const INCLUDED_LOGPROBS = 'message.output_text.logprobs'
/** The include for reasoning that is stored elsewhere. Here the response itself holds the reasoning. */
const INCLUDED_REASONING = 'reasoning.encrypted_content'

function includesLogprobs(include: unknown): boolean {
  if (isAbsent(include)) return false
  if (!Array.isArray(include)) throw invalidField('include', 'must be a list.')
  for (const [at, item] of include.entries()) {
    if (item === INCLUDED_LOGPROBS || item === INCLUDED_REASONING) continue
    throw invalidField(`include[${at}]`, `must be ${INCLUDED_LOGPROBS} or ${INCLUDED_REASONING}.`)
  }
  return include.includes(INCLUDED_LOGPROBS)
}

const FORMAT_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'schema', 'strict'])
const TEXT_FIELDS: ReadonlySet<string> = new Set(['format', 'verbosity'])

function formatOf(text: unknown, ignored: string[]): JsonObject | null {
  const fields = objectAt(text, 'text')
  if (fields === null) return null
  refuseOthers(fields, 'text', TEXT_FIELDS)
  if (!isAbsent(fields.verbosity)) ignored.push('text.verbosity')
  const format = objectAt(fields.format, 'text.format')
  if (format !== null) refuseOthers(format, 'text.format', FORMAT_FIELDS)
  return format
}

function chatFormat({ type, ...named }: JsonObject): JsonObject {
  return type === 'json_schema' ? { type, json_schema: presentOf(named) } : { type }
}

const REASONING_FIELDS: ReadonlySet<string> = new Set(['effort', 'summary', 'generate_summary'])

function effortOf(reasoning: unknown, ignored: string[]): unknown {
  const fields = objectAt(reasoning, 'reasoning')
  if (fields === null) return null
  refuseOthers(fields, 'reasoning', REASONING_FIELDS)
  for (const name of ['summary', 'generate_summary']) if (!isAbsent(fields[name])) ignored.push(`reasoning.${name}`)
  return fields.effort ?? null
}

function choiceOf(choice: unknown): unknown {
  if (!isObject(choice)) return choice
  if (choice.type !== 'function') throw invalidField('tool_choice.type', 'must be function: there are no other tools.')
  return { type: 'function', function: { name: choice.name } }
}

const TOOL_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])

function toolsOf(tools: unknown, names: FieldNames | null): unknown {
  if (!Array.isArray(tools)) return tools
  return tools.map((tool, at) => {
    const path = `tools[${at}]`
    names?.set(`${path}.function`, path)
    if (!isObject(tool)) throw invalidField(path, 'must be an object.')
    if (tool.type !== 'function') {
      throw invalidField(`${path}.type`, 'must be function: there are no built-in tools here; run them yourself.')
    }
    refuseOthers(tool, path, TOOL_FIELDS)
    const { name, description, parameters, strict } = tool
    return { type: 'function', function: presentOf({ name, description, parameters, strict }) }
  })
}
