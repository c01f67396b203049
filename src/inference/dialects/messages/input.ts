// `system` and `messages` of the Messages API as messages of a chat. Pure. Fault invalid_request.
//
// A message with results of tools becomes several: in a chat each result is its own message. Thinking becomes the
// reasoning of its message.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { FieldNames } from '../../openai/dialect.ts'
import { isAbsent, presentOf, textAt } from '../fields.ts'
import { foreignText } from '../foreign.ts'

const ROLES = ['user', 'assistant', 'system']

/** Path of the client's blocks in the chat, for errors only. */
type Notes = {
  readonly names: FieldNames | null
  /** Names of ignored fields within blocks. */
  readonly ignored: Set<string>
}

type Block = { readonly block: JsonObject; readonly path: string }

export function chatMessages({ system, messages }: JsonObject, notes: Notes): JsonObject[] {
  const found: JsonObject[] = []
  if (!isAbsent(system))
    found.push({ role: 'system', content: partsOf(blocksAt(system, 'system', notes), found, notes) })
  if (!Array.isArray(messages) || messages.length === 0) {
    throw invalidField('messages', 'must be a list with at least one message.')
  }
  for (const [at, message] of messages.entries()) {
    const path = `messages[${at}]`
    if (!isObject(message)) throw invalidField(path, 'must be an object.')
    const { role } = message
    if (typeof role !== 'string' || !ROLES.includes(role)) {
      throw invalidField(`${path}.role`, `must be one of ${ROLES.join(', ')}.`)
    }
    const blocks = blocksAt(message.content, `${path}.content`, notes)
    if (role === 'assistant') addAssistant(found, blocks, notes)
    else addOthers(found, { role, blocks }, notes)
  }
  return found
}

/** Returns the blocks of a content. A string is one block. */
function blocksAt(content: unknown, path: string, { ignored }: Notes): Block[] {
  if (typeof content === 'string') return [{ block: { type: 'text', text: content }, path }]
  if (!Array.isArray(content)) throw invalidField(path, 'must be a string or a list of blocks.')
  return content.flatMap((block, at) => {
    if (!isObject(block)) throw invalidField(`${path}[${at}]`, 'must be an object.')
    if (!isAbsent(block.cache_control)) ignored.add('cache_control')
    return ownBlock({ block, path: `${path}[${at}]` }, ignored)
  })
}

const BLOCKS: readonly unknown[] = [
  ...['text', 'image', 'document', 'tool_use', 'tool_result', 'tool_reference', 'thinking', 'redacted_thinking'],
]

/** Returns blocks of this API unchanged. For a block of another server, returns its text; nothing if it has none. */
function ownBlock({ block, path }: Block, ignored: Set<string>): Block[] {
  if (typeof block.type !== 'string' || BLOCKS.includes(block.type)) return [{ block, path }]
  ignored.add(`messages.${block.type}`)
  const text = foreignText(block)
  return text === '' ? [] : [{ block: { type: 'text', text }, path }]
}

function addAssistant(found: JsonObject[], blocks: readonly Block[], notes: Notes): void {
  const said = blocks.filter(({ block }) => !UNSAID.includes(block.type))
  const calls = blocks.filter(({ block }) => block.type === 'tool_use').map(({ block, path }) => callOf(block, path))
  const content = said.length === 0 && calls.length > 0 ? null : partsOf(said, found, notes)
  const reasoning = blocks.map(({ block }) => thinkingOf(block, notes)).filter(text => text !== '')
  found.push({
    role: 'assistant',
    content,
    ...(reasoning.length === 0 ? {} : { reasoning_content: reasoning.join('\n\n') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  })
}

/** Returns the text of a block with thinking; empty for others. Only Anthropic can read redacted ones. */
function thinkingOf({ type, thinking }: JsonObject, { ignored }: Notes): string {
  if (type === 'redacted_thinking') ignored.add('messages.redacted_thinking')
  return type === 'thinking' && typeof thinking === 'string' ? thinking : ''
}

/** Blocks of an assistant without content. An unknown `type` may hold any value, which has no text either. */
const UNSAID: readonly unknown[] = ['tool_use', 'thinking', 'redacted_thinking']

function callOf({ id, name, input }: JsonObject, path: string): JsonObject {
  if (!isObject(input)) throw invalidField(`${path}.input`, 'must be an object.')
  const called = { name: textAt(name, `${path}.name`), arguments: JSON.stringify(input) }
  return { id: textAt(id, `${path}.id`), type: 'function', function: called }
}

/** Adds a message for each result, and one for the blocks between two results. */
function addOthers(
  found: JsonObject[],
  { role, blocks }: { readonly role: string; readonly blocks: readonly Block[] },
  notes: Notes,
): void {
  let said: Block[] = []
  const flush = () => {
    if (said.length > 0) found.push({ role, content: partsOf(said, found, notes) })
    said = []
  }
  for (const item of blocks) {
    if (role !== 'user' || item.block.type !== 'tool_result') {
      said.push(item)
      continue
    }
    flush()
    const { block, path } = item
    const callId = textAt(block.tool_use_id, `${path}.tool_use_id`)
    if (block.is_error === true) notes.ignored.add('is_error')
    const inner = isAbsent(block.content) ? [] : blocksAt(block.content, `${path}.content`, notes)
    found.push({ role: 'tool', tool_call_id: callId, content: partsOf(inner, found, notes) })
  }
  flush()
}

/**
 * Returns the content of the message that is added next. A single text becomes a string, which every engine accepts in
 * every role.
 */
function partsOf(blocks: readonly Block[], found: readonly JsonObject[], { names }: Notes): unknown {
  if (blocks.length === 0) return ''
  const parts = blocks.map((block, i) => partOf(block, names, `messages[${found.length}].content[${i}]`))
  const [only] = parts
  return parts.length === 1 && only?.type === 'text' ? only.text : parts
}

function partOf({ block, path }: Block, names: FieldNames | null, at: string): JsonObject {
  names?.set(at, path)
  switch (block.type) {
    case 'text':
      if (typeof block.text !== 'string') throw invalidField(`${path}.text`, 'must be a string.')
      return { type: 'text', text: block.text }
    case 'tool_reference':
      // The tool itself is among the tools of the request.
      return { type: 'text', text: `The tool ${textAt(block.tool_name, `${path}.tool_name`)} can be called now.` }
    case 'image':
      names?.set(`${at}.image_url.url`, `${path}.source.url`)
      return { type: 'image_url', image_url: { url: imageUrlOf(block.source, `${path}.source`) } }
    case 'document':
      return documentOf(block, path)
    default:
      throw invalidField(
        `${path}.type`,
        'must be text, image, document, tool_use, tool_result or tool_reference, in a message of a role that allows it.',
      )
  }
}

function imageUrlOf(source: unknown, path: string): unknown {
  if (!isObject(source)) throw invalidField(path, 'must be an object.')
  if (source.type === 'url') return source.url
  if (source.type !== 'base64')
    throw invalidField(`${path}.type`, 'must be base64 or url: this gateway stores no files.')
  return `data:${textAt(source.media_type, `${path}.media_type`)};base64,${textAt(source.data, `${path}.data`)}`
}

function documentOf({ source, title }: JsonObject, path: string): JsonObject {
  if (!isObject(source)) throw invalidField(`${path}.source`, 'must be an object.')
  if (source.type === 'text') return { type: 'text', text: textAt(source.data, `${path}.source.data`) }
  if (source.type !== 'base64') {
    throw invalidField(
      `${path}.source.type`,
      'must be base64 or text: this gateway stores no files and fetches no document URLs.',
    )
  }
  const type = textAt(source.media_type, `${path}.source.media_type`)
  const data = `data:${type};base64,${textAt(source.data, `${path}.source.data`)}`
  return { type: 'file', file: presentOf({ file_data: data, filename: title }) }
}
