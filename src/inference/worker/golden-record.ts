// Finds a question for golden.ts that a model answers identically on every processor. Effects: its socket.

import type { GoldenAnswer } from '../../contract/vm/workload.ts'
import { type Asking, type Completion, complete, decodeText } from './golden.ts'

/** Prompts that models of all kinds continue in one way, so that the answer is the same on other processors. */
export const GOLDEN_PROMPTS = [
  '1, 2, 3, 4, 5, 6,',
  'one, two, three, four, five,',
  'A B C D E F G',
  'Monday, Tuesday, Wednesday,',
  'The capital of France is',
  'Once upon a time',
  'def fibonacci(n):',
  // Last, because an engine that only repeats its input would pass for some models.
  'a a a a a a a a',
] as const
const goldenTokensMax = 16
export const goldenTokensMin = 3

/**
 * Least lead of each token over the second, as a difference of natural logarithms. Between vector units of one
 * processor (AVX2, AVX, SSE) log probabilities of quantized models differed by up to 0.26, and tokens changed if the
 * lead was below 0.07 (src/decisions/inference.md).
 */
const gapMin = 1

/**
 * Returns the longest answer that does not depend on the processor; null if this model gives none. Faults: see
 * checkGolden.
 */
export async function recordGolden(asking: Asking): Promise<GoldenAnswer | null> {
  let best: GoldenAnswer | null = null
  for (const prompt of GOLDEN_PROMPTS) {
    const completion = await complete({ prompt, maxTokens: goldenTokensMax, alternatives: 2 }, asking)
    const found = certainAnswer(prompt, completion)
    if (found !== null && found.maxTokens > (best?.maxTokens ?? 0)) best = found
    if (best?.maxTokens === goldenTokensMax) break
  }
  return best
}

/** Returns the completion up to its first doubtful token; null if that occurs too soon. Pure. */
export function certainAnswer(prompt: string, completion: Completion): GoldenAnswer | null {
  const tokens = completion.completion_probabilities ?? []
  const doubtful = tokens.findIndex(({ bytes, top_logprobs: [first, second] }) => {
    const isKnown = bytes.length > 0 && first !== undefined && second !== undefined
    return !isKnown || first.logprob - second.logprob < gapMin
  })
  const certain = doubtful === -1 ? tokens : tokens.slice(0, doubtful)
  // A token may end in the middle of a character.
  for (let count = certain.length; count >= goldenTokensMin; count -= 1) {
    const expected = decodeText(certain.slice(0, count).flatMap(({ bytes }) => bytes))
    if (expected !== null && completion.content.startsWith(expected)) return { prompt, maxTokens: count, expected }
  }
  return null
}
