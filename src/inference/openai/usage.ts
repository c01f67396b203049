// Token counts that an upstream reports for a request, in OpenAI's form, and whether they are plausible. Pure.

import { isObject, type JsonObject } from '../json-text.ts'
import type { Tokens } from '../types.ts'
import type { GatewayRequest } from './request.ts'
import { isCount, isNone, malformed } from './upstream-json.ts'

export type Usage = { prompt_tokens: number; completion_tokens: number; total_tokens: number } & JsonObject

/** Parses the usage; null if there is none, or only details of it. Throws UpstreamFault malformed. */
export function parseUsage(usage: unknown): Usage | null {
  if (isNone(usage)) return null
  if (!isObject(usage)) throw malformed()
  const total = countOf(usage.total_tokens)
  const given = countOf(usage.prompt_tokens ?? usage.input_tokens)
  const generated = countOf(usage.completion_tokens ?? usage.output_tokens)
  const prompt = given ?? (total === null || generated === null ? null : total - generated)
  if (prompt === null) return null
  const completion = generated ?? Math.max(0, (total ?? prompt) - prompt)
  if (prompt < 0) throw malformed()
  const reasoning = isObject(usage.completion_tokens_details)
    ? usage.completion_tokens_details.reasoning_tokens
    : undefined
  const cached = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details.cached_tokens : undefined
  const counted = usageOf({ prompt, completion })
  if (cached === undefined && reasoning === undefined) return counted
  return {
    ...counted,
    ...(isCount(cached) && cached <= prompt ? { prompt_tokens_details: { cached_tokens: cached } } : {}),
    ...(isCount(reasoning) ? { completion_tokens_details: { reasoning_tokens: reasoning } } : {}),
  }
}

/**
 * Returns the usage of a request that generates nothing. Some engines report only the total. Null if the engine does
 * not count; older versions of llama-server report 0. Throws UpstreamFault malformed.
 */
export function pooledUsage(usage: unknown): Usage | null {
  const given = parseUsage(isObject(usage) ? { completion_tokens: 0, ...usage } : usage)
  return given === null || given.prompt_tokens === 0 ? null : given
}

/** For embeddings and rankings. `counted`: prompt tokens from the head of the response. */
export type PooledCounts = {
  readonly bounds: UsageBounds
  readonly promptEstimate: number
  readonly counted?: number | undefined
}

export function countedUsage({ counted }: PooledCounts): Usage | null {
  return counted === undefined ? null : usageOf({ prompt: counted, completion: 0 })
}

export function usageOf({ prompt, completion }: Tokens): Usage {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

export function tokensOf(usage: Usage): Tokens {
  const tokens = { prompt: usage.prompt_tokens, completion: usage.completion_tokens }
  const cached = cachedTokensOf(usage)
  return cached === 0 ? tokens : { ...tokens, cached }
}

/** Returns the prompt tokens from the engine's cache; 0 if the engine does not report them. */
export function cachedTokensOf({ prompt_tokens_details: details }: Usage): number {
  return isObject(details) && isCount(details.cached_tokens) ? details.cached_tokens : 0
}

/** Returns the usage without the count of cached tokens, which would reveal other clients' prompts. */
export function withoutCached(given: Usage): Usage {
  if (given.prompt_tokens_details === undefined) return given
  const { prompt_tokens_details: _, ...usage } = given
  return usage
}

/** Maximum usage of one request. */
export type UsageBounds = { readonly promptTokensMax: number; readonly completionTokensMax: number }

/** Tokens that a chat template may add to the text. */
const templateTokensMax = 4_096
/** A content part that is not text may be more tokens than it has bytes. */
const partTokensMax = 1_048_576
/** Default if the configuration sets no context size: more than any engine's context. */
const contextTokensMax = 16_777_216
/** Default if neither client nor configuration sets a bound: as many tokens as most engines answer at most. */
const completionTokensDefault = 131_072

/** Computes the bounds. `bodyBytes`: size of the request. A token of text has at least one byte. */
export function usageBounds(
  { choiceCount, completionTokensMax, needs }: GatewayRequest,
  { bodyBytes, contextTokens }: { readonly bodyBytes: number; readonly contextTokens: number | null },
): UsageBounds {
  const context = contextTokens ?? contextTokensMax
  const parts = needs.kinds.size > 0 || needs.remoteUrls ? partTokensMax : 0
  return {
    promptTokensMax: Math.min(choiceCount * context, bodyBytes + templateTokensMax + parts),
    completionTokensMax:
      choiceCount * Math.min(completionTokensMax ?? contextTokens ?? completionTokensDefault, context),
  }
}

/** Minimum number of response bytes per token. Reasoning that an engine does not send has none. */
const bytesOfTokenMin = 1
/** Tokens that end a choice, and those that an engine holds back of a choice that was cut off. */
const silentTokensMax = 64

/**
 * Reports whether the usage is within the bounds, with no more tokens than `responseBytes`, the upstream's bytes;
 * reasoning excepted.
 */
export function isPlausible(usage: Usage, bounds: UsageBounds, responseBytes: number): boolean {
  const { prompt, completion } = tokensOf(usage)
  if (prompt > bounds.promptTokensMax || completion > bounds.completionTokensMax) return false
  const details = usage.completion_tokens_details
  const reasoning = isObject(details) && isCount(details.reasoning_tokens) ? details.reasoning_tokens : 0
  return (completion - reasoning) * bytesOfTokenMin <= responseBytes + silentTokensMax
}

/** Returns the count; null if there is none. */
function countOf(value: unknown): number | null {
  if (isNone(value)) return null
  if (!isCount(value)) throw malformed()
  return value
}
