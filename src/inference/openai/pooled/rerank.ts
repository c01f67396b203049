// Converts an engine's ranking into the form of Cohere, Jina and vLLM: checked, sorted by score, cut to the best. Pure.
// vLLM and llama-server answer with `results` and `relevance_score`, SGLang and
// text-embeddings-inference with a list whose items have `score`.

import { Fault } from '../../../base/fault.ts'
import type { TokensSource } from '../../../store/directory/usage/usage.table.ts'
import { isObject } from '../../json-text.ts'
import type { Tokens } from '../../types.ts'
import { isCount, malformed, parseUpstreamJson } from '../upstream-json.ts'
import { countedUsage, isPlausible, type PooledCounts, pooledUsage, type Usage, usageOf } from '../usage.ts'
import type { RerankRequest } from './request.ts'

type Ranked = { readonly index: number; readonly score: number }

export type Ranking = {
  /** Results, the best first. */
  readonly ranked: readonly Ranked[]
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
}

/** Engines may return the documents, each character escaped. */
const bytesOfByteMax = 6
const resultBytesMax = 1_024
const frameBytesMax = 65_536

/** Returns the bound of an upstream's response in bytes; a longer one is the upstream's own fault. */
export function rankingBytesMax({ inputCount }: RerankRequest, bodyBytes: number): number {
  return bytesOfByteMax * bodyBytes + inputCount * resultBytesMax + frameBytesMax
}

/** Returns the fault of a response that is too large because the client sent too many documents. */
export function tooManyDocuments(): Fault {
  const message = 'The response would be too large: send fewer documents, or leave out return_documents.'
  return new Fault('invalid_request', message, { param: 'documents' })
}

/** Parses a ranking. Throws UpstreamFault malformed unless each document has one finite score. */
export function parseRanking(text: string, { inputCount }: RerankRequest, counts: PooledCounts): Ranking {
  const { bounds, promptEstimate } = counts
  const value = parseUpstreamJson(text)
  const results = isObject(value) ? value.results : value
  if (!Array.isArray(results) || results.length !== inputCount) throw malformed()
  const ranked = results.map((result): Ranked => {
    if (!isObject(result)) throw malformed()
    const { index } = result
    const score = result.relevance_score ?? result.score
    if (!isCount(index) || index >= inputCount || typeof score !== 'number' || !Number.isFinite(score)) {
      throw malformed()
    }
    return { index, score }
  })
  if (new Set(ranked.map(({ index }) => index)).size !== inputCount) throw malformed()
  ranked.sort((left, right) => right.score - left.score || left.index - right.index)
  const given = isObject(value) ? pooledUsage(value.usage) : (summedUsage(results) ?? countedUsage(counts))
  const isReported = given !== null && isPlausible(given, bounds, text.length)
  return {
    ranked,
    tokens: { prompt: isReported ? given.prompt_tokens : promptEstimate, completion: 0 },
    tokensSource: isReported ? 'reported' : given === null ? 'estimated' : 'implausible',
  }
}

/** Returns the sum of the results' counts; null unless each result has its own. */
function summedUsage(results: readonly unknown[]): Usage | null {
  let prompt = 0
  for (const result of results) {
    const info = isObject(result) && isObject(result.meta_info) ? result.meta_info.prompt_tokens : null
    if (!isCount(info) || info === 0) return null
    prompt += info
  }
  return usageOf({ prompt, completion: 0 })
}

/** Writes the response. `documents`: JSON of each document; null if the client does not request them. */
export function rankingText(
  { ranked, tokens: { prompt } }: Ranking,
  { model, topN }: RerankRequest,
  documents: readonly string[] | null,
): string {
  const results = ranked.slice(0, topN).map(({ index, score }) => {
    const document = documents === null ? '' : `,"document":{"text":${documents[index]}}`
    return `{"index":${index},"relevance_score":${JSON.stringify(score)}${document}}`
  })
  const usage = { prompt_tokens: prompt, total_tokens: prompt }
  return `{"object":"list","model":${JSON.stringify(model)},"results":[${results.join(',')}],"usage":${JSON.stringify(usage)}}`
}
