// `instructions` and `input` of the Responses API as messages of a chat. Pure. Fault invalid_request.
//
// Each item becomes a message, except that function calls join the assistant's message right before them, as in a chat.
// Reasoning becomes a field of the assistant's message behind it. Fields without meaning for a model (id, status,
// annotations) are ignored, because clients send earlier responses' items unchanged.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { Earlier, FieldNames } from '../../openai/dialect.ts'
import { customArguments } from '../../openai/engines/custom-tools.ts'
import { isAbsent, presentOf, textAt } from '../fields.ts'
import { foreignText } from '../foreign.ts'
import { CLIENT_CALLS, isClientCall, outputOf, replayedArguments } from './client-calls.ts'
import { compactionPrompt, isCompactionRequest, summaryMessage } from './compaction.ts'
import { noSuchItem } from './earlier.ts'
import { reasoningText } from './reasoning.ts'
import { type LoadedTools, namespaceAt, type Tools } from './tools.ts'

const ROLES = ['user', 'assistant', 'system', 'developer']

type Message = { [name: string]: unknown }

type Translation = { readonly names: FieldNames | null; readonly ignored: Set<string>; readonly tools: Tools }
/** `reasoning`: texts that wait for the assistant's message behind them. */
type Notes = Translation & { readonly reasoning: string[] }

export function chatMessages({ input, instructions }: JsonObject, given: Translation, earlier: Earlier): Message[] {
  const { names } = given
  const notes = { ...given, reasoning: [] }
  const messages: Message[] = []
  if (!isAbsent(instructions)) {
    if (typeof instructions !== 'string') throw invalidField('instructions', 'must be a string.')
    messages.push({ role: 'system', content: instructions })
  }
  for (const item of earlier.items) addItem(messages, item, { path: 'previous_response_id', ...notes })
  if (typeof input === 'string') {
    names?.set(`messages[${messages.length}].content`, 'input')
    messages.push({ role: 'user', content: input })
    return messages
  }
  if (!Array.isArray(input)) throw invalidField('input', 'must be a string or a list of items.')
  const isCompaction = isCompactionRequest(input)
  for (const [at, item] of (isCompaction ? input.slice(0, -1) : input).entries()) {
    const path = `input[${at}]`
    addItem(messages, namedItem(item, path, earlier), { path, ...notes })
  }
  if (isCompaction) messages.push({ role: 'user', content: compactionPrompt })
  return messages
}

/** Returns the item; if the request only names it, the named one. Throws Fault not_found. */
function namedItem(item: unknown, path: string, { named }: Earlier): unknown {
  if (!isObject(item) || item.type !== 'item_reference') return item
  const found = named.get(textAt(item.id, `${path}.id`))
  if (found === undefined) throw noSuchItem(path)
  return found
}

/** Items that add tools to the request: the results of searches, and Codex's own. */
const LOADING: readonly unknown[] = ['tool_search_output', 'additional_tools']

export function loadedTools({ input }: JsonObject, { items, named }: Earlier): LoadedTools[] {
  const own = Array.isArray(input) ? input : []
  const given = own.map((item, at) => ({ item: referencedItem(item, named), path: `input[${at}]` }))
  return [...items.map(item => ({ item, path: 'previous_response_id' })), ...given].flatMap(({ item, path }) =>
    isObject(item) && LOADING.includes(item.type) ? [{ tools: item.tools, path }] : [],
  )
}

function referencedItem(item: unknown, named: Earlier['named']): unknown {
  return isObject(item) && item.type === 'item_reference' ? named.get(String(item.id)) : item
}

type FieldContext = Notes & { readonly path: string }

function addItem(messages: Message[], item: unknown, place: FieldContext): void {
  const { path, names } = place
  if (!isObject(item)) throw invalidField(path, 'must be an object.')
  const type = item.type ?? 'message'
  if (type === 'reasoning') {
    noteReasoning(item, place)
    return
  }
  if (type === 'additional_tools') return
  // A search that OpenAI ran has no call.
  if ((type === 'tool_search_call' || type === 'tool_search_output') && isAbsent(item.call_id)) return
  if (type === 'function_call' || type === 'custom_tool_call' || isClientCall(type)) {
    addCall(messages, item, place)
    return
  }
  const at = `messages[${messages.length}]`
  names?.set(at, path)
  if (type === 'message') {
    const { role } = item
    if (typeof role !== 'string' || !ROLES.includes(role)) {
      throw invalidField(`${path}.role`, `must be one of ${ROLES.join(', ')}.`)
    }
    const message: Message = {
      role,
      content: contentOf(item.content, { path, names }, { at, field: 'content', mayBeEmpty: role === 'assistant' }),
    }
    if (role === 'assistant') addReasoning(message, place)
    else place.reasoning.splice(0)
    messages.push(message)
  } else if (type === 'agent_message') {
    messages.push({ role: 'user', content: agentText(item, place) })
  } else if (typeof type === 'string' && isOutput(type)) {
    place.reasoning.splice(0)
    // OpenAI's local shell names the call in `id`, Codex in `call_id`.
    const callId = textAt(item.call_id ?? (type === 'local_shell_call_output' ? item.id : null), `${path}.call_id`)
    const output = type === 'tool_search_output' ? foundText(item, place.tools) : outputOf(item)
    const content = contentOf(output, { path, names }, { at, field: 'output', mayBeEmpty: true })
    messages.push({ role: 'tool', tool_call_id: callId, content })
  } else if (typeof type === 'string' && type !== 'item_reference') {
    const summary = summaryMessage(item)
    if (summary !== null) {
      messages.push({ ...summary })
      return
    }
    place.ignored.add(`input.${type}`)
    const content = foreignText(item)
    if (content !== '') messages.push({ role: 'assistant', content })
  } else {
    throw invalidField(
      `${path}.type`,
      'must be message, a call or an output of a tool, item_reference, reasoning, compaction or compaction_trigger.',
    )
  }
}

function noteReasoning(item: JsonObject, { reasoning, ignored }: FieldContext): void {
  const text = reasoningText(item)
  if (text === null) ignored.add('input.reasoning')
  else if (text !== '') reasoning.push(text)
}

/** Adds the reasoning before a message to the message. */
function addReasoning(message: Message, { reasoning }: FieldContext): void {
  const texts = reasoning.splice(0)
  if (texts.length === 0) return
  if (typeof message.reasoning_content === 'string') texts.unshift(message.reasoning_content)
  message.reasoning_content = texts.join('\n\n')
}

function isOutput(type: string): boolean {
  const call = type.endsWith('_output') ? type.slice(0, -'_output'.length) : ''
  return call === 'function_call' || call === 'custom_tool_call' || call === 'tool_search' || isClientCall(call)
}

/** Returns the names that the engine has for the tools found by a search. */
function foundText({ tools: found }: JsonObject, tools: Tools): string {
  const names = (Array.isArray(found) ? found : []).flatMap((tool): string[] => {
    if (!isObject(tool) || typeof tool.name !== 'string') return []
    return tool.type === 'namespace' ? tools.namesIn(tool.name) : [tools.nameOf(null, tool.name)]
  })
  return names.length === 0 ? 'No tools were found.' : `These tools can be called now: ${names.join(', ')}.`
}

/** Returns a message between two agents of Codex. Only OpenAI can read its encrypted parts. */
function agentText({ author, recipient, content }: JsonObject, { path, ignored }: FieldContext): string {
  if (!Array.isArray(content)) throw invalidField(`${path}.content`, 'must be a list of parts.')
  const texts = content.flatMap((part, at): string[] => {
    if (!isObject(part)) throw invalidField(`${path}.content[${at}]`, 'must be an object.')
    if (typeof part.text === 'string') return [part.text]
    ignored.add(`agent_message.${String(part.type)}`)
    return []
  })
  return [`Message from ${String(author)} to ${String(recipient)}:`, ...texts].join('\n')
}

function addCall(messages: Message[], item: JsonObject, place: FieldContext): void {
  const { path, names } = place
  const call = { id: textAt(item.call_id, `${path}.call_id`), type: 'function', function: toFunction(item, place) }
  const last = messages.at(-1)
  const calls = last?.role === 'assistant' ? last.tool_calls : undefined
  const at = `messages[${last?.role === 'assistant' ? messages.length - 1 : messages.length}]`
  names?.set(`${at}.tool_calls[${Array.isArray(calls) ? calls.length : 0}].function`, path)
  const message: Message = last?.role === 'assistant' ? last : { role: 'assistant', content: null }
  if (message !== last) messages.push(message)
  addReasoning(message, place)
  if (Array.isArray(calls)) calls.push(call)
  else message.tool_calls = [call]
}

function toFunction(item: JsonObject, { path, tools }: FieldContext): JsonObject {
  const { type } = item
  if (isClientCall(type)) {
    const [toolType] = CLIENT_CALLS[type].toolTypes
    return { name: tools.nameOfType(toolType) ?? toolType, arguments: replayedArguments(type, item, path) }
  }
  const name = tools.nameOf(namespaceAt(item, path), textAt(item.name, `${path}.name`))
  const field = type === 'custom_tool_call' ? 'input' : 'arguments'
  const given = item[field]
  if (typeof given !== 'string') throw invalidField(`${path}.${field}`, 'must be a string.')
  // Cursor replays a call of a custom tool as a call of a function with the text as its arguments.
  const isText = field === 'input' || (tools.forms.get(name)?.kind === 'custom' && !given.trimStart().startsWith('{'))
  return { name, arguments: isText ? customArguments(given) : given }
}

/** `at`: the chat message. `field`: its path in the client's request. */
type Target = { readonly at: string; readonly field: string; readonly mayBeEmpty: boolean }

/** Converts a content. A single text becomes a string, which every engine accepts in every role. */
function contentOf(
  content: unknown,
  { path, names }: Pick<FieldContext, 'path' | 'names'>,
  { at, field, mayBeEmpty }: Target,
): unknown {
  const from = `${path}.${field}`
  names?.set(`${at}.content`, from)
  if (typeof content === 'string') return content
  if (!Array.isArray(content) || (content.length === 0 && !mayBeEmpty)) {
    throw invalidField(from, 'must be a string or a list of parts.')
  }
  // The answer was only reasoning, or the tool returned nothing.
  if (content.length === 0) return ''
  const parts = content.map((part, i) => partOf(part, `${from}[${i}]`, { names, at: `${at}.content[${i}]` }))
  const [only] = parts
  return parts.length === 1 && only?.type === 'text' ? only.text : parts
}

type PartPlace = { readonly names: FieldNames | null; readonly at: string }

const PART_TYPES = 'input_text, input_image, input_file, input_audio, output_text or refusal'

/** Returns the part in the form of a chat. */
export function partOf(part: unknown, path: string, { names, at }: PartPlace): JsonObject {
  const type = isObject(part) ? part.type : null
  if (!isObject(part)) throw invalidField(path, 'must be an object.')
  switch (type) {
    case 'input_text':
    case 'output_text':
    case 'text':
      if (typeof part.text !== 'string') throw invalidField(`${path}.text`, 'must be a string.')
      return { type: 'text', text: part.text }
    case 'refusal':
      return { type: 'refusal', refusal: part.refusal }
    case 'input_image':
      refuseKept(part, path, ['file_id'], 'image_url')
      names?.set(`${at}.image_url.url`, `${path}.image_url`)
      return { type: 'image_url', image_url: presentOf({ url: part.image_url, detail: part.detail }) }
    case 'input_file':
      refuseKept(part, path, ['file_id', 'file_url'], 'file_data')
      names?.set(`${at}.file`, path)
      return { type: 'file', file: presentOf({ file_data: part.file_data, filename: part.filename }) }
    case 'input_audio':
      return { type: 'input_audio', input_audio: part.input_audio }
    default:
      throw invalidField(`${path}.type`, `must be ${PART_TYPES}.`)
  }
}

function refuseKept(part: JsonObject, path: string, fields: readonly string[], instead: string): void {
  for (const field of fields) {
    if (!isAbsent(part[field])) {
      throw invalidField(`${path}.${field}`, `is not supported: send the content itself in ${instead}.`)
    }
  }
}
