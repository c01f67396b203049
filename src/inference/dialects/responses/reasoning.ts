// Items `reasoning` of the Responses API: their text, and a form that clients send back. Pure.
//
// Codex leaves `content` out of the items that it replays, and keeps `encrypted_content`. So an item has its text there
// too if the request includes `reasoning.encrypted_content`. It is not encrypted: the client has the text anyway.

import { isObject, type JsonObject } from '../../json-text.ts'

/** Marks a text of a gateway. Other servers encrypt theirs, and only they can read them. */
const mark = 'strongroom.reasoning:'

export function encodeReasoning(text: string): string {
  return mark + text
}

/** Returns the text of an item, or of its summary; empty for none. Null if only another server can read it. */
export function reasoningText({ content, encrypted_content: encoded, summary }: JsonObject): string | null {
  const text = textsOf(content)
  if (text !== '') return text
  if (typeof encoded === 'string' && encoded.startsWith(mark)) return encoded.slice(mark.length)
  const summarized = textsOf(summary)
  return summarized === '' && typeof encoded === 'string' && encoded !== '' ? null : summarized
}

function textsOf(parts: unknown): string {
  if (!Array.isArray(parts)) return ''
  return parts.flatMap(part => (isObject(part) && typeof part.text === 'string' ? [part.text] : [])).join('\n\n')
}
