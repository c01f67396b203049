// Compaction of a conversation: the model writes a summary, and the client stores it instead of the items before it.
// The gateway stores nothing. Pure.
//
// Codex requests it if its provider is named OpenAI: with a last item `compaction_trigger`, or in older versions at
// /v1/responses/compact. It expects one item `compaction`, and does not compact locally after an error.

import { isObject, type JsonObject } from '../../json-text.ts'

/** Marks a summary of a gateway. Other servers encrypt theirs, and only they can read them. */
const mark = 'strongroom.summary:'

export const compactionPrompt =
  'Write a summary of this conversation from which another assistant can go on with the work, without the conversation itself. ' +
  'State the task, and every instruction of the user that still holds; what was done, with files, commands and results; ' +
  'decisions and their reasons; what failed; the present state; and the next steps. ' +
  'Keep names, paths, numbers and code that are still needed as they are. Answer with the summary alone, and call no tools.'

/** Reports whether the request ends with the item that requests a compaction. */
export function isCompactionRequest(input: unknown): boolean {
  const last: unknown = Array.isArray(input) ? input.at(-1) : null
  return isObject(last) && last.type === 'compaction_trigger'
}

/** Returns a request to the endpoint for compactions as one that ends with the item. Codex sends no `stream`. */
export function asCompaction({ stream: _, ...body }: JsonObject): JsonObject {
  const { input } = body
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : (input ?? [])
  return { ...body, input: Array.isArray(items) ? [...items, { type: 'compaction_trigger' }] : items }
}

/** Returns the value of `encrypted_content` for a summary. It is plain text. */
export function encodeSummary(text: string): string {
  return mark + text
}

/** Returns a message with the summary of an item; null if the item has no summary of a gateway. */
export function summaryMessage({ type, encrypted_content: sealed }: JsonObject): JsonObject | null {
  if (type !== 'compaction' && type !== 'compaction_summary') return null
  if (typeof sealed !== 'string' || !sealed.startsWith(mark)) return null
  return { role: 'user', content: `Summary of the conversation up to here:\n\n${sealed.slice(mark.length)}` }
}
