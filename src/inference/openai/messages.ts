// Checks the messages of a chat request and finds the abilities that their content needs of an upstream. Pure. Fault
// invalid_request.

import { CONTENT_KINDS, type ContentKind, type Engine } from '../../config/upstream/kinds.ts'
import { invalidField, isObject, type JsonObject } from '../json-text.ts'
import { customArguments } from './engines/custom-tools.ts'
import { takeReasoning } from './engines/reasoning.ts'
import type { Repairs } from './repairs.ts'

/** Abilities that an upstream must be configured for. */
export type ContentNeeds = {
  readonly kinds: ReadonlySet<ContentKind>
  /** Whether a part names a URL that the upstream would fetch. */
  readonly remoteUrls: boolean
}

export const TEXT_ONLY: ContentNeeds = { kinds: new Set(), remoteUrls: false }

const ROLES = ['developer', 'system', 'user', 'assistant', 'tool']

/** Checks the messages. `custom`: names of the functions that represent custom tools. */
export function parseMessages(messages: unknown, custom: ReadonlySet<string>, repairs: Repairs): ContentNeeds {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw invalidField('messages', 'must be a list with at least one message.')
  }
  let kinds: Set<ContentKind> | null = null
  let remoteUrls = false
  for (let at = 0; at < messages.length; at += 1) {
    const message: unknown = messages[at]
    const path = `messages[${at}]`
    if (!isObject(message)) throw invalidField(path, 'must be an object.')
    const { role } = message
    if (typeof role !== 'string' || !ROLES.includes(role)) {
      throw invalidField(`${path}.role`, `must be one of ${ROLES.join(', ')}.`)
    }
    if (role === 'assistant' && takeReasoning(message, repairs)) repairs.hasReasoning = true
    if (role === 'assistant') takeRefusal(message, repairs)
    const { content } = message
    if (Array.isArray(content) && content.length > 0) {
      for (const [partAt, part] of content.entries()) {
        const need = parsePart(part, `${path}.content[${partAt}]`)
        kinds ??= new Set()
        if (need.kind !== 'text') kinds.add(need.kind)
        remoteUrls ||= need.isRemote
      }
    } else if (typeof content !== 'string') {
      // An answer that was cut off, or consists only of reasoning, has no content.
      if (role !== 'assistant' || (content !== undefined && content !== null)) {
        throw invalidField(`${path}.content`, 'must be a string or a list of parts.')
      }
    }
    const { tool_calls: calls } = message
    if (calls !== undefined && calls !== null) checkToolCalls(calls, `${path}.tool_calls`, { custom, repairs })
    if (role === 'tool' && typeof message.tool_call_id !== 'string') {
      throw invalidField(`${path}.tool_call_id`, 'must name the call that this answers.')
    }
  }
  return kinds === null || (kinds.size === 0 && !remoteUrls) ? TEXT_ONLY : { kinds, remoteUrls }
}

/** Converts the refusals of an earlier answer to plain text, because llama-server and SGLang refuse such parts. */
function takeRefusal(message: JsonObject, repairs: Repairs): void {
  const { content, refusal } = message
  if (Array.isArray(content)) {
    for (const [at, part] of content.entries()) {
      if (!isObject(part) || part.type !== 'refusal' || typeof part.refusal !== 'string') continue
      content[at] = { type: 'text', text: part.refusal }
      repairs.note('messages')
    }
  } else if (!isNonEmpty(content) && isNonEmpty(refusal)) {
    Object.assign(message, { content: refusal, refusal: null })
    repairs.note('messages')
  }
}

type PartNeed = { readonly kind: ContentKind | 'text'; readonly isRemote: boolean }

const PART_KINDS: Readonly<Record<string, ContentKind | 'text'>> = {
  text: 'text',
  refusal: 'text',
  image_url: 'image',
  video_url: 'video',
  input_audio: 'audio',
  file: 'file',
}

function parsePart(part: unknown, path: string): PartNeed {
  const type = isObject(part) && typeof part.type === 'string' ? part.type : ''
  const kind = Object.hasOwn(PART_KINDS, type) ? PART_KINDS[type] : undefined
  if (!isObject(part) || kind === undefined) {
    throw invalidField(`${path}.type`, `must be one of ${Object.keys(PART_KINDS).join(', ')}.`)
  }
  const value = part[type]
  if (kind === 'text') {
    if (typeof value !== 'string') throw invalidField(`${path}.${type}`, 'must be a string.')
    return { kind, isRemote: false }
  }
  if (kind === 'audio' || kind === 'file') {
    const field = kind === 'audio' ? 'data' : 'file_data'
    if (!isObject(value) || typeof value[field] !== 'string') {
      throw invalidField(`${path}.${type}.${field}`, 'must be a string: the content itself, in base64.')
    }
    return { kind, isRemote: false }
  }
  return { kind, isRemote: isRemoteUrl(value, `${path}.${type}.url`) }
}

function isRemoteUrl(value: unknown, path: string): boolean {
  const url = isObject(value) ? value.url : null
  if (typeof url === 'string' && /^data:/i.test(url)) return false
  if (typeof url === 'string' && /^https?:\/\//i.test(url)) return true
  throw invalidField(path, 'must be a data: URL with the content itself, or an http or https URL.')
}

type CallNotes = { readonly custom: ReadonlySet<string>; readonly repairs: Repairs }

function checkToolCalls(calls: unknown, path: string, { custom, repairs }: CallNotes): void {
  if (!Array.isArray(calls)) throw invalidField(path, 'must be a list of calls.')
  for (const [at, given] of calls.entries()) {
    const call = functionCall(given)
    if (call !== given) {
      calls[at] = call
      repairs.note('messages')
    }
    const named = isObject(call) && isNonEmpty(call.id) && call.type === 'function' ? call.function : null
    if (!isObject(named) || !isNonEmpty(named.name) || typeof named.arguments !== 'string') {
      throw invalidField(`${path}[${at}]`, 'must have id, type "function", function.name and function.arguments.')
    }
    const repaired = repairs.argumentsOf(named.arguments)
    if (repaired === null) continue
    // Cursor replays a call of a custom tool with the text as its arguments.
    const args = custom.has(String(named.name)) ? customArguments(named.arguments) : repaired
    Object.assign(named, { arguments: args })
    repairs.note('messages')
  }
}

/** Returns the call of the function that represents a custom tool; any other call unchanged. */
function functionCall(call: unknown): unknown {
  const called = isObject(call) && call.type === 'custom' ? call.custom : null
  if (!isObject(call) || !isObject(called) || typeof called.input !== 'string') return call
  return { id: call.id, type: 'function', function: { name: called.name, arguments: customArguments(called.input) } }
}

function isNonEmpty(value: unknown): boolean {
  return typeof value === 'string' && value !== ''
}

/** Kinds of parts that an engine does not accept in OpenAI's form. SGLang has another form of audio. */
const FOREIGN_CONTENT = {
  openai: null,
  vllm: ['file'],
  sglang: ['audio', 'file'],
  'llama-server': ['file'],
  'text-embeddings-inference': null,
} as const satisfies Record<Engine, readonly ContentKind[] | null>

/** Returns why an upstream that accepts these kinds of content cannot accept the messages; null if it can. */
export function unmetNeed(
  { kinds, remoteUrls }: ContentNeeds,
  taken: { readonly engine: Engine; readonly content: readonly ContentKind[]; readonly remoteUrls: boolean },
): string | null {
  const foreign: readonly ContentKind[] | null = FOREIGN_CONTENT[taken.engine]
  const missing = CONTENT_KINDS.find(
    kind => kinds.has(kind) && (foreign?.includes(kind) || !taken.content.includes(kind)),
  )
  if (missing !== undefined) return `This model does not take content parts of the kind ${missing}.`
  if (remoteUrls && !taken.remoteUrls)
    return 'URLs are not fetched for this model; send the content itself as a data: URL.'
  return null
}
