// Reasoning of earlier answers, which clients send back with the messages of a chat. Pure.
//
// Chat templates need it between the calls of tools. vLLM passes `reasoning_content` to the template until 0.15,
// `reasoning` from 0.16 to 0.21, and either since 0.22. SGLang and llama-server read only `reasoning_content`. Other
// servers may refuse such fields, so they get them only as a client of chats has written them.

import type { Engine } from '../../../config/upstream/kinds.ts'
import { isObject, type JsonObject, type Member, membersOf, partsOf } from '../../json-text.ts'
import type { Repairs } from '../repairs.ts'

/** Origin of the reasoning in a request: the client's own fields, or a translation from another API. */
export type ReasoningOrigin = 'client' | 'translation'

/** Name in `x-strongroom-ignored` of a request whose reasoning the engine does not get. */
export const reasoningName = 'messages.reasoning'

const FIELDS: readonly string[] = ['reasoning_content', 'reasoning']

/** Fields of each engine; null for an engine that gets no reasoning. */
const ENGINE_FIELDS = {
  openai: null,
  vllm: FIELDS,
  sglang: ['reasoning_content'],
  'llama-server': ['reasoning_content'],
  'text-embeddings-inference': null,
} as const satisfies Record<Engine, readonly string[] | null>

/** Returns the texts of `reasoning_details`, the form of OpenRouter and MiniMax; empty if there are none. */
export function detailsText(details: unknown): string {
  if (!Array.isArray(details)) return ''
  const texts = details.map(detail => (isObject(detail) ? (detail.text ?? detail.summary) : null))
  return texts.filter(text => typeof text === 'string').join('')
}

/**
 * Reports whether an assistant's message has reasoning. Moves the text of other forms to `reasoning_content`:
 * `reasoning_details`, and Mistral's parts of the type `thinking`.
 */
export function takeReasoning(message: JsonObject, repairs: Repairs): boolean {
  const { content, reasoning_details: details } = message
  const parts = Array.isArray(content) ? content.filter(isThinking) : []
  const isFound = FIELDS.some(name => typeof message[name] === 'string' && message[name] !== '')
  const text = isFound ? '' : detailsText(details) || parts.map(({ thinking }) => thoughtsText(thinking)).join('')
  if (parts.length > 0 && Array.isArray(content)) {
    const rest = content.filter(part => !isThinking(part))
    Object.assign(message, { content: rest.length === 0 ? '' : rest })
  }
  if (text !== '') Object.assign(message, { reasoning_content: text })
  if (parts.length > 0 || text !== '') repairs.note('messages')
  return isFound || text !== ''
}

function isThinking(part: unknown): part is JsonObject {
  return isObject(part) && part.type === 'thinking'
}

function thoughtsText(thinking: unknown): string {
  return typeof thinking === 'string' ? thinking : detailsText(thinking)
}

/** Reports whether the engine gets the reasoning in the client's own fields. */
export function keepsReasoning(engine: Engine, origin: ReasoningOrigin): boolean {
  return engine === 'openai' && origin === 'client'
}

/**
 * Returns the JSON of the messages with reasoning in the fields of the engine. `isWhole`: whether all of it was kept.
 */
export function messagesWithReasoning(messages: string, engine: Engine): { readonly text: string; isWhole: boolean } {
  let isWhole = true
  const parts = partsOf(messages).map(message => {
    // A mark represents messages that were cut out (cut-source.ts); they have no reasoning to convert.
    const members = reasoningMembers(message)
    const given = members?.find(isReasoning)
    if (members === null || given === undefined) return message
    const kept = members.filter(({ name }) => !FIELDS.includes(name) && name !== 'reasoning_details')
    const names = engine === 'llama-server' && isMixed(kept) ? null : ENGINE_FIELDS[engine]
    if (names === null) isWhole = false
    const written = names?.map(name => `${JSON.stringify(name)}:${given.value}`) ?? []
    return `{${[...kept.map(({ text }) => text), ...written].join(',')}}`
  })
  return { text: `[${parts.join(',')}]`, isWhole }
}

/**
 * Reports whether the message has calls and content. The template of gpt-oss, as llama-server runs it, raises an error
 * if such a message has reasoning too.
 */
function isMixed(members: readonly Member[]): boolean {
  return ['content', 'tool_calls'].every(name => members.some(member => member.name === name && !isEmpty(member.value)))
}

function isEmpty(value: string): boolean {
  return ['""', 'null', '[]'].includes(value.trim())
}

/** Returns the members of the JSON of a message; null if it has no reasoning. */
export function reasoningMembers(message: string): readonly Member[] | null {
  // A letter of a name is written as itself or as `\u00…`.
  if (!/"reasoning|\\u00/.test(message)) return null
  const members = membersOf(message)
  return members.some(isReasoning) ? members : null
}

function isReasoning({ name, value }: Member): boolean {
  return FIELDS.includes(name) && value.trimStart().startsWith('"') && !isEmpty(value)
}
