// The tokens that an upstream says a request used, in OpenAI's form. Pure.

import type { Tokens } from '../types.ts'
import { isObject, type JsonObject } from './json-text.ts'
import { isCount, isNone, malformed } from './upstream-json.ts'

export type Usage = { prompt_tokens: number; completion_tokens: number; total_tokens: number } & JsonObject

/** Null when there is none. UpstreamFault malformed for counts that make no sense: they are billed. */
export function parseUsage(usage: unknown): Usage | null {
  if (isNone(usage)) return null
  if (!isObject(usage)) throw malformed()
  const prompt = countOf(usage.prompt_tokens)
  const completion = countOf(usage.completion_tokens ?? 0)
  const cached = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details.cached_tokens : undefined
  const reasoning = isObject(usage.completion_tokens_details)
    ? usage.completion_tokens_details.reasoning_tokens
    : undefined
  return {
    ...usageOf({ prompt, completion }),
    ...(isCount(cached) ? { prompt_tokens_details: { cached_tokens: cached } } : {}),
    ...(isCount(reasoning) ? { completion_tokens_details: { reasoning_tokens: reasoning } } : {}),
  }
}

export function usageOf({ prompt, completion }: Tokens): Usage {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

export function tokensOf(usage: Usage): Tokens {
  return { prompt: usage.prompt_tokens, completion: usage.completion_tokens }
}

function countOf(value: unknown): number {
  if (!isCount(value)) throw malformed()
  return value
}
