// `instructions` and `input` of the Responses API as messages of a chat. Pure. Fault invalid_request.
//
// Each item becomes a message, except that function calls join the assistant's message right before them, as in a chat.
// Reasoning is dropped: chats do not take it back. Fields without meaning for a model (id, status, annotations) are
// ignored, because clients send earlier responses' items unchanged.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { Earlier, FieldNames } from '../../openai/dialect.ts'
import { isAbsent, presentOf, textAt } from '../fields.ts'
import { noSuchItem } from './earlier.ts'
import { customInput } from './tools.ts'

const ROLES = ['user', 'assistant', 'system', 'developer']

type Message = { [name: string]: unknown }

export function chatMessages(
  { input, instructions }: JsonObject,
  names: FieldNames | null,
  earlier: Earlier,
): Message[] {
  const messages: Message[] = []
  if (!isAbsent(instructions)) {
    if (typeof instructions !== 'string') throw invalidField('instructions', 'must be a text.')
    messages.push({ role: 'system', content: instructions })
  }
  for (const item of earlier.items) addItem(messages, item, { path: 'previous_response_id', names })
  if (typeof input === 'string') {
    names?.set(`messages[${messages.length}].content`, 'input')
    messages.push({ role: 'user', content: input })
    return messages
  }
  if (!Array.isArray(input)) throw invalidField('input', 'must be a text or a list of items.')
  for (const [at, item] of input.entries()) {
    const path = `input[${at}]`
    addItem(messages, namedItem(item, path, earlier), { path, names })
  }
  return messages
}

/** The item itself, where the request only names it. Fault not_found. */
function namedItem(item: unknown, path: string, { named }: Earlier): unknown {
  if (!isObject(item) || item.type !== 'item_reference') return item
  const found = named.get(textAt(item.id, `${path}.id`))
  if (found === undefined) throw noSuchItem(path)
  return found
}

type Place = { readonly path: string; readonly names: FieldNames | null }

function addItem(messages: Message[], item: unknown, { path, names }: Place): void {
  if (!isObject(item)) throw invalidField(path, 'must be an object.')
  const type = item.type ?? 'message'
  if (type === 'reasoning') return
  if (type === 'function_call' || type === 'custom_tool_call') {
    addCall(messages, item, { path, names })
    return
  }
  const at = `messages[${messages.length}]`
  names?.set(at, path)
  if (type === 'message') {
    const { role } = item
    if (typeof role !== 'string' || !ROLES.includes(role)) {
      throw invalidField(`${path}.role`, `must be one of ${ROLES.join(', ')}.`)
    }
    messages.push({
      role,
      content: contentOf(item.content, { path, names }, { at, field: 'content', mayBeEmpty: role === 'assistant' }),
    })
  } else if (type === 'function_call_output' || type === 'custom_tool_call_output') {
    const callId = textAt(item.call_id, `${path}.call_id`)
    const content = contentOf(item.output, { path, names }, { at, field: 'output', mayBeEmpty: true })
    messages.push({ role: 'tool', tool_call_id: callId, content })
  } else {
    throw invalidField(
      `${path}.type`,
      'must be message, function_call, custom_tool_call, an output of those, item_reference or reasoning.',
    )
  }
}

function addCall(messages: Message[], item: JsonObject, { path, names }: Place): void {
  const field = item.type === 'custom_tool_call' ? 'input' : 'arguments'
  const given = item[field]
  const call = {
    id: textAt(item.call_id, `${path}.call_id`),
    type: 'function',
    function: {
      name: textAt(item.name, `${path}.name`),
      arguments: field === 'input' ? JSON.stringify({ [customInput]: given }) : given,
    },
  }
  if (typeof given !== 'string') throw invalidField(`${path}.${field}`, 'must be a text.')
  const last = messages.at(-1)
  const calls = last?.role === 'assistant' ? last.tool_calls : undefined
  const at = `messages[${last?.role === 'assistant' ? messages.length - 1 : messages.length}]`
  names?.set(`${at}.tool_calls[${Array.isArray(calls) ? calls.length : 0}].function`, path)
  if (Array.isArray(calls)) calls.push(call)
  else if (last?.role === 'assistant') last.tool_calls = [call]
  else messages.push({ role: 'assistant', content: null, tool_calls: [call] })
}

/** `at`: the chat message; `field`: its path in the client's request. */
type Target = { readonly at: string; readonly field: string; readonly mayBeEmpty: boolean }

/** A text alone is a text, which every engine takes in every role. */
function contentOf(content: unknown, { path, names }: Place, { at, field, mayBeEmpty }: Target): unknown {
  const from = `${path}.${field}`
  names?.set(`${at}.content`, from)
  if (typeof content === 'string') return content
  if (!Array.isArray(content) || (content.length === 0 && !mayBeEmpty)) {
    throw invalidField(from, 'must be a text or a list of parts.')
  }
  // An answer was all reasoning, or a tool said nothing.
  if (content.length === 0) return ''
  const parts = content.map((part, i) => partOf(part, `${from}[${i}]`, { names, at: `${at}.content[${i}]` }))
  const [only] = parts
  return parts.length === 1 && only?.type === 'text' ? only.text : parts
}

type PartPlace = { readonly names: FieldNames | null; readonly at: string }

const PART_TYPES = 'input_text, input_image, input_file, input_audio, output_text or refusal'

function partOf(part: unknown, path: string, { names, at }: PartPlace): JsonObject {
  const type = isObject(part) ? part.type : null
  if (!isObject(part)) throw invalidField(path, 'must be an object.')
  switch (type) {
    case 'input_text':
    case 'output_text':
    case 'text':
      if (typeof part.text !== 'string') throw invalidField(`${path}.text`, 'must be a text.')
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
