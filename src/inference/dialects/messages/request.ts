// A request of the Messages API as a chat request. Pure. Fault invalid_request.
// Every field is in one of these tables, or refused.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { FieldNames } from '../../openai/dialect.ts'
import { flagAt, isAbsent, objectAt, presentOf, refuseOthers } from '../fields.ts'
import { chatMessages } from './input.ts'

export type ChatOfMessages = { readonly chat: JsonObject; readonly ignored: readonly string[] }

/** Unsupported fields, with the alternative. */
const REFUSED = {
  container: 'is not supported: there are no containers here; leave it out, and run code yourself.',
  context_management: 'is not supported; shorten messages yourself.',
  mcp_servers: 'is not supported: no other servers are asked here; offer their tools as tools.',
} as const satisfies Record<string, string>

/** Fields that change nothing in a response. Whether a model thinks is its own matter. */
const IGNORED = ['cache_control', 'metadata', 'service_tier', 'thinking'] as const

const TAKEN = [
  ...['model', 'messages', 'system', 'max_tokens', 'stop_sequences', 'temperature', 'top_p', 'top_k', 'stream'],
  ...['tools', 'tool_choice', 'output_config'],
]
const KNOWN: ReadonlySet<string> = new Set([...TAKEN, ...IGNORED])

/** Names of fields in errors about the chat request. */
export const MESSAGES_NAMES = {
  stop: 'stop_sequences',
  reasoning_effort: 'output_config.effort',
  'response_format.json_schema': 'output_config.format',
} as const satisfies Record<string, string>

export function chatOfMessages(body: JsonObject, names: FieldNames | null): ChatOfMessages {
  for (const [name, problem] of Object.entries(REFUSED)) if (!isAbsent(body[name])) throw invalidField(name, problem)
  refuseOthers(body, '', KNOWN)
  const ignored = new Set<string>(IGNORED.filter(name => !isAbsent(body[name])))
  if (isAbsent(body.max_tokens)) {
    throw invalidField('max_tokens', 'must be there: the most tokens that the response may have.')
  }
  const { model, max_tokens, temperature, top_p, top_k, stream } = body
  const tools = toolsOf(body.tools, { names, ignored })
  const chat = presentOf({
    model,
    messages: chatMessages(body, { names, ignored }),
    tools,
    ...choiceOf(body.tool_choice, tools),
    ...outputOf(body.output_config),
    max_tokens,
    temperature,
    top_p,
    top_k,
    stop: stopOf(body.stop_sequences),
    stream,
  })
  return { chat, ignored: [...ignored] }
}

function stopOf(stops: unknown): unknown {
  if (isAbsent(stops)) return null
  if (!Array.isArray(stops)) throw invalidField('stop_sequences', 'must be a list of texts.')
  return stops.length === 0 ? null : stops
}

type Notes = { readonly names: FieldNames | null; readonly ignored: Set<string> }

const TOOL_FIELDS: ReadonlySet<string> = new Set([
  ...['type', 'name', 'description', 'input_schema', 'strict', 'cache_control', 'eager_input_streaming'],
])

function toolsOf(tools: unknown, { names, ignored }: Notes): unknown {
  if (!Array.isArray(tools)) return tools
  return tools.map((tool, at) => {
    const path = `tools[${at}]`
    names?.set(`${path}.function`, path)
    names?.set(`${path}.function.parameters`, `${path}.input_schema`)
    if (!isObject(tool)) throw invalidField(path, 'must be an object.')
    if (!isAbsent(tool.type) && tool.type !== 'custom') {
      throw invalidField(`${path}.type`, 'must be custom: there are no built-in tools here; run them yourself.')
    }
    refuseOthers(tool, path, TOOL_FIELDS)
    for (const name of ['cache_control', 'eager_input_streaming']) if (!isAbsent(tool[name])) ignored.add(name)
    const { name, description, input_schema: parameters, strict } = tool
    if (!isObject(parameters)) throw invalidField(`${path}.input_schema`, 'must be a JSON Schema object.')
    return { type: 'function', function: presentOf({ name, description, parameters, strict }) }
  })
}

const CHOICE_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'disable_parallel_tool_use'])

function choiceOf(value: unknown, tools: unknown): JsonObject {
  const choice = objectAt(value, 'tool_choice')
  if (choice === null) return {}
  refuseOthers(choice, 'tool_choice', CHOICE_FIELDS)
  const isSingle = flagAt(choice.disable_parallel_tool_use, 'tool_choice.disable_parallel_tool_use') === true
  const parallel = isSingle ? { parallel_tool_calls: false } : {}
  switch (choice.type) {
    case 'auto':
    case 'none':
      return { tool_choice: choice.type, ...parallel }
    case 'any':
      if (!Array.isArray(tools) || tools.length === 0) throw invalidField('tool_choice', '"any" needs tools.')
      return { tool_choice: 'required', ...parallel }
    case 'tool':
      if (typeof choice.name !== 'string') throw invalidField('tool_choice.name', 'must name a tool.')
      return { tool_choice: { type: 'function', function: { name: choice.name } }, ...parallel }
    default:
      throw invalidField('tool_choice.type', 'must be auto, any, tool or none.')
  }
}

const OUTPUT_FIELDS: ReadonlySet<string> = new Set(['effort', 'format'])
const FORMAT_FIELDS: ReadonlySet<string> = new Set(['type', 'schema'])

function outputOf(config: unknown): JsonObject {
  const fields = objectAt(config, 'output_config')
  if (fields === null) return {}
  refuseOthers(fields, 'output_config', OUTPUT_FIELDS)
  const format = objectAt(fields.format, 'output_config.format')
  if (format === null) return { reasoning_effort: fields.effort }
  refuseOthers(format, 'output_config.format', FORMAT_FIELDS)
  if (format.type !== 'json_schema') throw invalidField('output_config.format.type', 'must be json_schema.')
  const named = { name: 'output', strict: true, schema: format.schema }
  return { reasoning_effort: fields.effort, response_format: { type: 'json_schema', json_schema: named } }
}
