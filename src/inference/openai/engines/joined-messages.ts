// Joins the messages of a chat for engines: all system and developer texts in one message at the front, and adjacent
// messages of one role in one message. Pure.
//
// Chat templates of many models raise an error for other orders, or drop the text of such messages silently. Among the
// templates that llama.cpp ships, those for Qwen 3.5 and Mistral raise an error; those for Qwen 2.5 and 3, GLM,
// DeepSeek and MiMo drop developer messages. Results of tools stay separate, because each names its call.

import { assert } from '../../../base/assert.ts'
import { isObject, type JsonObject, membersOf, partsOf } from '../../json-text.ts'
import type { RequestSource } from '../request.ts'

/** Name in `x-strongroom-ignored` of a request whose messages were joined. */
export const joinedName = 'messages.joined'

type Message = { readonly value: JsonObject; readonly text: string }

/** Returns the source with joined messages; null if every template accepts them unchanged. */
export function joinMessages({ text, body, sizeBytes, changes }: RequestSource): RequestSource | null {
  const roles = rolesOf(body.messages)
  if (!mustJoin(roles)) return null
  const members = membersOf(text)
  // The text may have longer numbers than the value.
  const texts = partsOf(members.find(({ name }) => name === 'messages')?.value ?? '')
  assert(texts.length === roles.length, 'the text is that of the messages')
  const joined = runsOf(roles).map(run => joinRun(run.map(at => texts[at] ?? '')))
  const written = `"messages":[${joined.map(message => message.text).join(',')}]`
  return {
    text: `{${members.map(member => (member.name === 'messages' ? written : member.text)).join(',')}}`,
    body: { ...body, messages: joined.map(message => message.value) },
    sizeBytes,
    changes: [joinedName, ...changes],
  }
}

function rolesOf(messages: unknown): unknown[] {
  return Array.isArray(messages) ? messages.map(message => (isObject(message) ? message.role : null)) : []
}

function mustJoin(roles: readonly unknown[]): boolean {
  return roles.some(
    (role, at) =>
      role === 'developer' || (at > 0 && (role === 'system' || (role === roles[at - 1] && role !== 'tool'))),
  )
}

/** Returns the indices of the messages that are joined into one message each, in order. */
function runsOf(roles: readonly unknown[]): number[][] {
  const instructions: number[] = []
  const runs: number[][] = []
  let last: unknown = null
  for (const [at, role] of roles.entries()) {
    if (role === 'system' || role === 'developer') {
      instructions.push(at)
      continue
    }
    if (role === last && role !== 'tool') runs.at(-1)?.push(at)
    else runs.push([at])
    last = role
  }
  return instructions.length === 0 ? runs : [instructions, ...runs]
}

function joinRun(texts: readonly string[]): Message {
  const messages = texts.map((text): JsonObject => JSON.parse(text))
  const [first = {}] = messages
  if (messages.length === 1 && first.role !== 'developer') return { value: first, text: texts[0] ?? '' }
  const calls = messages.flatMap(({ tool_calls: given }) => (Array.isArray(given) ? given : []))
  const value = {
    ...messages.reduce((all, message) => Object.assign(all, message), {}),
    role: first.role === 'developer' ? 'system' : first.role,
    content: joinContents(messages.map(({ content }) => content)),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
    ...joinTexts(messages, 'reasoning_content'),
    ...joinTexts(messages, 'reasoning'),
  }
  return { value, text: JSON.stringify(value) }
}

/** Joins parts that are all text into one string, because some templates accept nothing else in some roles. */
function joinContents(contents: readonly unknown[]): unknown {
  const parts = contents.flatMap((content): unknown[] => {
    if (Array.isArray(content)) return content
    return typeof content === 'string' && content !== '' ? [{ type: 'text', text: content }] : []
  })
  const texts = parts.flatMap(part => (isObject(part) && part.type === 'text' ? [part.text] : []))
  if (texts.length < parts.length) return parts
  return texts.length === 0 ? (contents.find(content => content === '') ?? null) : texts.join(separator)
}

const separator = '\n\n'

function joinTexts(messages: readonly JsonObject[], name: 'reasoning' | 'reasoning_content'): JsonObject {
  const texts = messages.map(message => message[name]).filter(text => typeof text === 'string' && text !== '')
  return texts.length === 0 ? {} : { [name]: texts.join(separator) }
}
