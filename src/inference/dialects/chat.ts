// A body of POST /v1/chat/completions: a chat's own, or one in the form of the Responses API, which
// Cursor and others send there. Either is answered as a chat. Pure. Fault invalid_request.

import { invalidField, isObject, type JsonObject } from '../json-text.ts'
import type { Dialect } from '../openai/dialect.ts'
import { repairedText } from '../openai/repairs.ts'
import { type ParsedRequest, parseSource, type RequestSource } from '../openai/request.ts'
import { isChatField } from '../openai/request-fields.ts'
import { isAbsent } from './fields.ts'
import { parseDialect } from './request.ts'
import { partOf } from './responses/input.ts'
import { chatOfResponse, isResponseField, RESPONSE_NAMES } from './responses/request.ts'

/** `ignored`: fields that the translation has left out. */
type ParsedChat = ParsedRequest & { readonly ignored: readonly string[]; readonly traits: null }

/** Fields of the Responses API that would change the answer. */
const REFUSED = {
  previous_response_id: 'is not supported here: send the earlier messages in this request, or use /v1/responses.',
  conversation: 'is not supported: send the earlier messages in this request.',
} as const satisfies Record<string, string>

const UNSUPPORTED_FIELDS = Object.entries(REFUSED)

export function parseChat(given: RequestSource): ParsedChat {
  const { body } = given
  for (const [name, problem] of UNSUPPORTED_FIELDS) {
    if (!isAbsent(body[name])) throw invalidField(name, problem)
  }
  if (isAbsent(body.input)) {
    const { request, source } = parseSource('chat', withChatParts(given))
    return { request, source, ignored: NONE, traits: null }
  }
  if (!isAbsent(body.messages)) {
    throw invalidField('messages', 'and input are both in the body: send messages, or input as in the Responses API.')
  }
  const { request, source, ignored, traits } = parseDialect(RESPONSES_IN_CHAT, given)
  const custom = [...(traits?.tools ?? [])].flatMap(([name, { kind }]) => (kind === 'custom' ? [name] : []))
  return { request: { ...request, customTools: new Set(custom) }, source, ignored, traits: null }
}

/** Fields that only chats have keep their meaning. */
const RESPONSES_IN_CHAT: Pick<Dialect, 'translate' | 'names'> = {
  translate: (body, names) => {
    // Without a prototype, so that `__proto__` is an ordinary field.
    const own: Record<string, unknown> = Object.create(null)
    const response: Record<string, unknown> = Object.create(null)
    for (const name in body) (isOwn(name) ? own : response)[name] = body[name]
    const { chat, ignored, traits } = chatOfResponse(response, names)
    for (const name in own) names?.delete(name)
    return { chat: { ...own, ...chat }, ignored, traits }
  },
  names: RESPONSE_NAMES,
}

/** Both APIs have `stream_options`; that of chats has more. `messages` is absent here. */
function isOwn(name: string): boolean {
  return name === 'stream_options' || (isChatField(name) && !isResponseField(name) && name !== 'messages')
}

/** Returns the source with parts of the Responses API converted to those of chats. */
function withChatParts(given: RequestSource): RequestSource {
  const { messages } = given.body
  let isChanged = false
  const list: readonly unknown[] = Array.isArray(messages) ? messages : NONE
  for (let at = 0; at < list.length; at += 1) {
    const message = list[at]
    const content: unknown = isObject(message) ? message.content : null
    if (!Array.isArray(content)) continue
    for (const [partAt, part] of content.entries()) {
      if (!isResponsePart(part)) continue
      content[partAt] = partOf(part, `messages[${at}].content[${partAt}]`, { names: null, at: '' })
      isChanged = true
    }
  }
  return isChanged ? { ...given, text: repairedText(given.text, given.body, new Set(['messages'])) } : given
}

const NONE: readonly string[] = []
const RESPONSE_PARTS: readonly unknown[] = ['input_text', 'output_text', 'input_image', 'input_file']

function isResponsePart(part: unknown): part is JsonObject {
  return isObject(part) && RESPONSE_PARTS.includes(part.type)
}
