// A request of the Messages API as a chat request. Pure. Fault invalid_request.
//
// Fields that would change the answer are taken or refused by name; all others, later ones included, are left out and
// named.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { FieldNames } from '../../openai/dialect.ts'
import { functionOfClientTool } from '../../openai/engines/client-tools.ts'
import { flagAt, ignoreOthers, isAbsent, objectAt, presentOf, refuseChatFields } from '../fields.ts'
import { chatMessages } from './input.ts'

export type ChatOfMessages = { readonly chat: JsonObject; readonly ignored: readonly string[] }

/** Unsupported fields, with the alternative. */
const REFUSED = {
  container: 'is not supported: this gateway has no containers; leave it out, and run code in your client.',
  inference_geo: 'is not supported: the attestation states where the model runs; leave it out.',
  mcp_servers: 'is not supported: this gateway calls no other servers; pass their tools in `tools`.',
} as const satisfies Record<string, string>

const TAKEN = [
  ...['model', 'messages', 'system', 'max_tokens', 'stop_sequences', 'temperature', 'top_p', 'top_k', 'stream'],
  ...['tools', 'tool_choice', 'output_config', 'output_format', 'cache_salt'],
]
const KNOWN: ReadonlySet<string> = new Set([...TAKEN, ...Object.keys(REFUSED)])

/** Names of fields in errors about the chat request. */
export const MESSAGES_NAMES = {
  stop: 'stop_sequences',
  reasoning_effort: 'output_config.effort',
  'response_format.json_schema': 'output_config.format',
} as const satisfies Record<string, string>

export function chatOfMessages(body: JsonObject, names: FieldNames | null): ChatOfMessages {
  for (const [name, problem] of Object.entries(REFUSED)) {
    if (!isAbsent(body[name]) && !isEmptyList(body[name])) throw invalidField(name, problem)
  }
  refuseChatFields(body, KNOWN)
  const ignored = new Set<string>()
  ignoreOthers(body, '', { known: KNOWN, ignored })
  checkContextManagement(body.context_management)
  if (isAbsent(body.max_tokens)) {
    throw invalidField('max_tokens', 'is required: the maximum number of tokens in the response.')
  }
  const { model, max_tokens, temperature, top_p, top_k, stream } = body
  const tools = toolsOf(body.tools, { names, ignored })
  const chat = presentOf({
    model,
    messages: chatMessages(body, { names, ignored }),
    tools,
    ...choiceOf(body.tool_choice, tools, ignored),
    ...outputOf(body, { names, ignored }),
    max_tokens,
    temperature,
    top_p,
    top_k,
    stop: stopOf(body.stop_sequences),
    stream,
    cache_salt: body.cache_salt,
  })
  return { chat, ignored: [...ignored] }
}

function stopOf(stops: unknown): unknown {
  if (isAbsent(stops)) return null
  if (!Array.isArray(stops)) throw invalidField('stop_sequences', 'must be a list of strings.')
  return stops.length === 0 ? null : stops
}

type Notes = { readonly names: FieldNames | null; readonly ignored: Set<string> }

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/**
 * Leaves out edits that only shorten the prompt: without them the model has seen more. Thinking is never sent to the
 * engine. A compaction is part of the answer.
 */
function checkContextManagement(value: unknown): void {
  const edits = objectAt(value, 'context_management')?.edits
  if (!Array.isArray(edits)) return
  for (const [at, edit] of edits.entries()) {
    const type = isObject(edit) ? edit.type : null
    if (typeof type === 'string' && type.startsWith('clear_')) continue
    throw invalidField(
      `context_management.edits[${at}].type`,
      'must be an edit that clears; shorten messages in your client.',
    )
  }
}

const TOOL_FIELDS: ReadonlySet<string> = new Set([
  ...['type', 'name', 'description', 'input_schema', 'strict', 'cache_control', 'eager_input_streaming'],
])

/** Converts the tools. Tools of types that run at Anthropic are left out and named. */
function toolsOf(tools: unknown, { names, ignored }: Notes): unknown {
  if (!Array.isArray(tools)) return tools
  const found: JsonObject[] = []
  for (const [at, tool] of tools.entries()) {
    const path = `tools[${at}]`
    const chatPath = `tools[${found.length}]`
    names?.set(chatPath, path)
    names?.set(`${chatPath}.function`, path)
    names?.set(`${chatPath}.function.parameters`, `${path}.input_schema`)
    if (!isObject(tool)) throw invalidField(path, 'must be an object.')
    if (!isAbsent(tool.type) && tool.type !== 'custom') {
      if (typeof tool.type !== 'string') throw invalidField(`${path}.type`, 'must be a string.')
      const own = functionOfClientTool(tool)
      if (own === null) ignored.add(`tools.${tool.type}`)
      else found.push({ type: 'function', function: own })
      continue
    }
    ignoreOthers(tool, 'tools', { known: TOOL_FIELDS, ignored })
    for (const name of ['cache_control', 'eager_input_streaming']) if (!isAbsent(tool[name])) ignored.add(name)
    const { name, description, input_schema: parameters, strict } = tool
    if (!isObject(parameters)) throw invalidField(`${path}.input_schema`, 'must be a JSON Schema object.')
    found.push({ type: 'function', function: presentOf({ name, description, parameters, strict }) })
  }
  return found
}

const CHOICE_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'disable_parallel_tool_use'])

function choiceOf(value: unknown, tools: unknown, ignored: Set<string>): JsonObject {
  const choice = objectAt(value, 'tool_choice')
  if (choice === null) return {}
  ignoreOthers(choice, 'tool_choice', { known: CHOICE_FIELDS, ignored })
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

/** Reads the requested format. `output_format` is its older place. */
function outputOf({ output_config: config, output_format: older }: JsonObject, { names, ignored }: Notes): JsonObject {
  const fields = objectAt(config, 'output_config') ?? {}
  ignoreOthers(fields, 'output_config', { known: OUTPUT_FIELDS, ignored })
  const path = isAbsent(fields.format) && !isAbsent(older) ? 'output_format' : 'output_config.format'
  const format = objectAt(path === 'output_format' ? older : fields.format, path)
  if (format === null) return { reasoning_effort: fields.effort }
  names?.set('response_format.json_schema', path)
  ignoreOthers(format, path, { known: FORMAT_FIELDS, ignored })
  if (format.type !== 'json_schema') throw invalidField(`${path}.type`, 'must be json_schema.')
  const named = { name: 'output', strict: true, schema: format.schema }
  return { reasoning_effort: fields.effort, response_format: { type: 'json_schema', json_schema: named } }
}
