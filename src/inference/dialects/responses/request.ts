// A request of the Responses API as a chat request. Pure. Fault invalid_request.
// Schemas: OpenAI's published API description, CreateResponse.
//
// Fields that would change the answer are taken or refused by name; all others, later ones included, are left out and
// named.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type {
  DialectRequest,
  Earlier,
  FieldNames,
  KeptResponse,
  RequestEcho,
  ResponseHead,
  ResponseTraits,
  ToolForms,
} from '../../openai/dialect.ts'
import { flagAt, ignoreOthers, isAbsent, objectAt, presentOf, refuseChatFields, textAt } from '../fields.ts'
import { isCompactionRequest } from './compaction.ts'
import { keptCharsMax, NOTHING_EARLIER } from './earlier.ts'
import { chatMessages, loadedTools } from './input.ts'
import { choiceOf, Tools } from './tools.ts'

/** How the response to a request is written. */
export type ResponseForm = {
  readonly head: ResponseHead
  readonly echo: RequestEcho
  readonly tools: ToolForms
  readonly isCompaction: boolean
  readonly includesReasoning: boolean
  /** Keeps the response for later requests; null if nothing is kept. */
  readonly keep: ((response: KeptResponse) => void) | null
}

/** Unsupported fields, with the alternative. */
const REFUSED = {
  background: 'is not supported: work ends with its request; leave it out, and stream the response.',
  conversation: 'is not supported: set previous_response_id to the previous response, or send the items in input.',
  context_management: 'is not supported; shorten input in your client, or end it with an item compaction_trigger.',
  prompt: 'is not supported: this gateway stores no prompts; send instructions and input.',
} as const satisfies Record<string, string>

const TAKEN = [
  ...['model', 'input', 'instructions', 'tools', 'tool_choice', 'parallel_tool_calls', 'text', 'max_output_tokens'],
  ...['temperature', 'top_p', 'top_logprobs', 'include', 'reasoning', 'stream', 'stream_options', 'metadata', 'store'],
  ...['truncation', 'user', 'previous_response_id', 'cache_salt'],
]
const KNOWN: ReadonlySet<string> = new Set([...TAKEN, ...Object.keys(REFUSED)])

/** Reports whether the API has the field. */
export function isResponseField(name: string): boolean {
  return KNOWN.has(name)
}

/** Names of fields in errors about the chat request. */
export const RESPONSE_NAMES = {
  messages: 'input',
  max_tokens: 'max_output_tokens',
  reasoning_effort: 'reasoning.effort',
  logprobs: 'include',
  'tool_choice.allowed_tools': 'tool_choice',
  response_format: 'text.format',
  'response_format.json_schema': 'text.format',
} as const satisfies Record<string, string>

export function chatOfResponse(
  body: JsonObject,
  names: FieldNames | null,
  earlier: Earlier = NOTHING_EARLIER,
): DialectRequest {
  refuse(body)
  const ignored = new Set<string>()
  ignoreOthers(body, '', { known: KNOWN, ignored })
  // The response is as good without truncation: an input that is too long gets an error.
  if (!isAbsent(body.truncation) && body.truncation !== 'disabled') ignored.add('truncation')
  const format = formatOf(body.text, ignored)
  const effort = effortOf(body.reasoning, ignored)
  const streamOptions = objectAt(body.stream_options, 'stream_options')
  if (streamOptions !== null) ignoreOthers(streamOptions, 'stream_options', { known: STREAM_FIELDS, ignored })
  const { max_output_tokens, temperature, top_p, top_logprobs, parallel_tool_calls } = body
  const { previous_response_id: previous } = body
  const asksLogprobs = includesLogprobs(body.include, ignored) || (typeof top_logprobs === 'number' && top_logprobs > 0)
  const loaded = loadedTools(body, earlier)
  const tools = new Tools(body.tools, loaded, { names, ignored })
  const toolChoice = choiceOf(body.tool_choice, tools)
  const isCompaction = isCompactionRequest(body.input)
  const chat = presentOf({
    model: body.model,
    messages: chatMessages(body, { names, ignored, tools }, earlier),
    // A summary is plain text.
    ...(isCompaction
      ? {}
      : {
          tools: Array.isArray(body.tools) || loaded.length > 0 ? tools.functions : body.tools,
          tool_choice: toolChoice,
          parallel_tool_calls,
          response_format: format === null ? null : chatFormat(format),
        }),
    // Not max_completion_tokens: engines that ignore that name would generate without a bound.
    max_tokens: max_output_tokens,
    temperature,
    top_p,
    logprobs: asksLogprobs ? true : null,
    top_logprobs: asksLogprobs ? top_logprobs : null,
    reasoning_effort: effort,
    user: body.user,
    cache_salt: body.cache_salt,
    stream: body.stream,
    stream_options:
      streamOptions === null ? null : presentOf({ include_obfuscation: streamOptions.include_obfuscation }),
  })
  const echo: RequestEcho = {
    format: format ?? { type: 'text' },
    max_output_tokens: max_output_tokens ?? null,
    metadata: metadataOf(body.metadata),
    parallel_tool_calls: parallel_tool_calls !== false,
    previous_response_id: isAbsent(previous) ? null : textAt(previous, 'previous_response_id'),
    reasoning: { effort, summary: null },
    store: isStored(body),
    temperature: temperature ?? null,
    tool_choice: body.tool_choice ?? 'auto',
    top_logprobs: top_logprobs ?? 0,
    top_p: top_p ?? null,
  }
  const traits: ResponseTraits = {
    echo,
    tools: tools.forms,
    isCompaction,
    includesReasoning: Array.isArray(body.include) && body.include.includes(INCLUDED_REASONING),
    // A response that builds on a compaction gets only the summary.
    previous: typeof previous === 'string' && !isCompaction ? previous : null,
    input: echo.store ? { items: isCompaction ? [] : keptItems(body.input, earlier) } : { text: null },
  }
  return { chat, ignored: [...ignored], traits }
}

export function responseForm(traits: ResponseTraits, head: ResponseHead): ResponseForm {
  const { echo, previous, input, ...form } = traits
  const keep = echo.store ? head.keep : null
  if (keep === null) return { head, echo: { ...echo, store: false }, ...form, keep: null }
  // Holds the text of the input, which is shorter than its items: a stream may last for minutes.
  const inputText = inputTextOf(input)
  return { head, echo, ...form, keep: response => keep({ previous, inputText, response }) }
}

/** Returns the JSON of the items; null if it is too long to be kept. */
export function inputTextOf(input: ResponseTraits['input']): string | null {
  if ('text' in input) return input.text
  const text = JSON.stringify(input.items)
  return text.length > keptCharsMax ? null : text
}

function keptItems(input: unknown, earlier: Earlier): unknown[] {
  return Array.isArray(input) ? input.map(item => keptItem(item, earlier)) : [{ role: 'user', content: input }]
}

/** Returns the item, or the one that it names. Without ids, because an id contains the id of a response. */
function keptItem(item: unknown, { named }: Earlier): unknown {
  // The id is that of the call.
  if (!isObject(item) || item.type === 'local_shell_call_output') return item
  const { id, ...own } = item
  return item.type === 'item_reference' && typeof id === 'string' ? named.get(id) : own
}

/** Reports whether items are stored for later requests. As at OpenAI, they are unless the client declines. */
function isStored({ store }: JsonObject): boolean {
  return flagAt(store, 'store') !== false
}

function refuse(body: JsonObject): void {
  for (const [name, problem] of Object.entries(REFUSED)) {
    const value = body[name]
    if (!isAbsent(value) && value !== false && !(Array.isArray(value) && value.length === 0)) {
      throw invalidField(name, problem)
    }
  }
  refuseChatFields(body, KNOWN)
}

const STREAM_FIELDS: ReadonlySet<string> = new Set(['include_obfuscation'])

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
    `must be at most ${metadataMax} strings of at most ${metadataCharsMax} characters, with names of at most ${metadataNameCharsMax}.`,
  )
}

const INCLUDED_LOGPROBS = 'message.output_text.logprobs'
/** The include for clients that replay reasoning as `encrypted_content` (reasoning.ts). */
const INCLUDED_REASONING = 'reasoning.encrypted_content'

/**
 * Reports whether log probabilities are included. The other includes belong to tools that this gateway does not have.
 */
function includesLogprobs(include: unknown, ignored: Set<string>): boolean {
  if (isAbsent(include)) return false
  if (!Array.isArray(include)) throw invalidField('include', 'must be a list.')
  for (const [at, item] of include.entries()) {
    if (item === INCLUDED_LOGPROBS || item === INCLUDED_REASONING) continue
    if (typeof item !== 'string') throw invalidField(`include[${at}]`, 'must be a string.')
    ignored.add(`include.${item}`)
  }
  return include.includes(INCLUDED_LOGPROBS)
}

const FORMAT_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'schema', 'strict'])
const TEXT_FIELDS: ReadonlySet<string> = new Set(['format'])

function formatOf(text: unknown, ignored: Set<string>): JsonObject | null {
  const fields = objectAt(text, 'text')
  if (fields === null) return null
  ignoreOthers(fields, 'text', { known: TEXT_FIELDS, ignored })
  const format = objectAt(fields.format, 'text.format')
  if (format !== null) ignoreOthers(format, 'text.format', { known: FORMAT_FIELDS, ignored })
  return format
}

function chatFormat({ type, ...named }: JsonObject): JsonObject {
  return type === 'json_schema' ? { type, json_schema: presentOf(named) } : { type }
}

const REASONING_FIELDS: ReadonlySet<string> = new Set(['effort'])

function effortOf(reasoning: unknown, ignored: Set<string>): unknown {
  const fields = objectAt(reasoning, 'reasoning')
  if (fields === null) return null
  ignoreOthers(fields, 'reasoning', { known: REASONING_FIELDS, ignored })
  return fields.effort ?? null
}
