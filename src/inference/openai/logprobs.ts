// Log probabilities of tokens, as engines send them, in OpenAI's form. Pure. UpstreamFault malformed.

import { isObject, type JsonObject } from '../json-text.ts'
import { isCount, isNone, malformed } from './upstream-json.ts'

export function chatLogprobs(logprobs: unknown): JsonObject | null {
  if (isNone(logprobs) || isEmptyList(logprobs)) return null
  if (!isObject(logprobs)) throw malformed()
  return { content: tokenLogprobs(logprobs.content), refusal: tokenLogprobs(logprobs.refusal) }
}

function tokenLogprobs(list: unknown): JsonObject[] | null {
  if (isNone(list)) return null
  if (!Array.isArray(list)) throw malformed()
  return list.map(entry => {
    const tops = isObject(entry) ? (entry.top_logprobs ?? []) : null
    if (!Array.isArray(tops)) throw malformed()
    return { ...tokenLogprob(entry), top_logprobs: tops.map(tokenLogprob) }
  })
}

type TokenLogprob = { token: string; logprob: number; bytes: unknown[] | null }

function tokenLogprob(entry: unknown): TokenLogprob {
  if (!isObject(entry) || typeof entry.token !== 'string') throw malformed()
  // JSON has no minus infinity: engines write null, OpenAI -9999.
  const logprob = entry.logprob === null ? -9999 : entry.logprob
  if (typeof logprob !== 'number') throw malformed()
  const bytes = entry.bytes ?? null
  if (bytes !== null && !(Array.isArray(bytes) && bytes.every(isCount))) throw malformed()
  return { token: entry.token, logprob, bytes }
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

const TEXT_LISTS = {
  tokens: (item: unknown) => typeof item === 'string',
  token_logprobs: (item: unknown) => typeof item === 'number' || item === null,
  top_logprobs: (item: unknown) =>
    item === null || (isObject(item) && Object.values(item).every(value => typeof value === 'number')),
  text_offset: isCount,
} as const satisfies Record<string, (item: unknown) => boolean>

export function textLogprobs(logprobs: unknown): JsonObject | null {
  if (isNone(logprobs) || isEmptyList(logprobs)) return null
  if (!isObject(logprobs)) throw malformed()
  const lists: Record<string, unknown> = {}
  for (const [name, isItem] of Object.entries(TEXT_LISTS)) {
    const list = logprobs[name]
    if (isNone(list)) continue
    if (!Array.isArray(list) || !list.every(isItem)) throw malformed()
    lists[name] = list
  }
  return lists
}
