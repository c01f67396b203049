// Asks a worker a question with a known answer over its socket before it serves: engines have returned garbage without
// an error. Effects: its socket.

import { fromUtf8, toHex, utf8 } from '../../base/bytes.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkedJson } from '../../contract/check.ts'
import { type Static, Type } from '../../contract/type.ts'
import type { GoldenAnswer } from '../../contract/vm/workload.ts'

export type Asking = {
  readonly socket: string
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Faults, with digests instead of texts: host.command_failed (another answer, or none), host.command_timeout. */
export async function checkGolden(golden: GoldenAnswer, asking: Asking): Promise<void> {
  const { prompt, maxTokens, expected } = golden
  const { content } = await complete({ prompt, maxTokens, alternatives: 0 }, asking)
  if (content.startsWith(expected)) return
  throw new Fault(
    'host.command_failed',
    `golden answer: SHA-256 ${digestOf(expected)} is expected, ${digestOf(content)} is what it answered`,
  )
}

/** Prompts that models of all kinds go on with in one way, so that the answer is the same on other processors. */
export const GOLDEN_PROMPTS = [
  '1, 2, 3, 4, 5, 6,',
  'one, two, three, four, five,',
  'A B C D E F G',
  'Monday, Tuesday, Wednesday,',
  'The capital of France is',
  'Once upon a time',
  'def fibonacci(n):',
  // Last, since an engine that only repeats would pass for some models.
  'a a a a a a a a',
] as const
const goldenTokensMax = 16
export const goldenTokensMin = 3

/**
 * Least lead of each token over the second, as a difference of natural logarithms. Between vector units of one
 * processor (AVX2, AVX, SSE) log probabilities of quantized models differed by up to 0.26, and tokens changed where the
 * lead was below 0.07 (src/decisions/inference.md).
 */
const gapMin = 1

/** The longest answer that does not hang on the processor; null: this model gives none. Faults: as checkGolden. */
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

/** The completion up to its first doubtful token; null when that comes too soon. Pure. */
export function certainAnswer(prompt: string, completion: Completion): GoldenAnswer | null {
  const tokens = completion.completion_probabilities ?? []
  const doubtful = tokens.findIndex(({ bytes, top_logprobs: [first, second] }) => {
    const isKnown = bytes.length > 0 && first !== undefined && second !== undefined
    return !isKnown || first.logprob - second.logprob < gapMin
  })
  const certain = doubtful === -1 ? tokens : tokens.slice(0, doubtful)
  // A token may end within a character.
  for (let count = certain.length; count >= goldenTokensMin; count -= 1) {
    const expected = textOf(certain.slice(0, count).flatMap(({ bytes }) => bytes))
    if (expected !== null && completion.content.startsWith(expected)) return { prompt, maxTokens: count, expected }
  }
  return null
}

function textOf(bytes: readonly number[]): string | null {
  return resultOr(() => fromUtf8(Uint8Array.from(bytes)), null)
}

/** The part of llama-server's response to /completion that is used here. */
const Completion = Type.Object({
  content: Type.String(),
  completion_probabilities: Type.Optional(
    Type.Array(
      Type.Object({
        bytes: Type.Array(Type.Integer({ minimum: 0, maximum: 255 })),
        top_logprobs: Type.Array(Type.Object({ logprob: Type.Number() })),
      }),
    ),
  ),
})
export type Completion = Static<typeof Completion>

type Question = { readonly prompt: string; readonly maxTokens: number; readonly alternatives: number }

const answerBytesMax = 1_048_576

/** Greedy. Faults: host.command_failed, host.command_timeout. */
async function complete({ prompt, maxTokens, alternatives }: Question, asking: Asking): Promise<Completion> {
  const timeout = AbortSignal.timeout(asking.timeoutMs)
  const failed = (problem: string, cause?: unknown) =>
    new Fault('host.command_failed', `golden answer: ${problem}`, { cause })
  try {
    const response = await fetch('http://built-in/completion', {
      unix: asking.socket,
      method: 'POST',
      // A new connection: a kept one may lead to an earlier process.
      keepalive: false,
      // It would lead out of the socket.
      redirect: 'manual',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        prompt,
        n_predict: maxTokens,
        n_probs: alternatives,
        temperature: 0,
        seed: 0,
        cache_prompt: false,
        stream: false,
      }),
      signal: AbortSignal.any([asking.signal, timeout]),
    })
    if (!response.ok) {
      await response.body?.cancel()
      throw failed(`the worker answered with status ${response.status}`)
    }
    const bytes = await readAtMost(response, answerBytesMax)
    if (bytes === null) throw failed(`the worker answered with more than ${answerBytesMax} bytes`)
    return checkedJson(Completion, bytes, { what: "golden answer: the worker's JSON", code: 'host.command_failed' })
  } catch (error) {
    if (error instanceof Fault) throw error
    if (!timeout.aborted) throw failed(messageOf(error), error)
    throw new Fault('host.command_timeout', `golden answer: none within ${asking.timeoutMs} ms`)
  }
}

/** Null when there are more. */
async function readAtMost(response: Response, bytesMax: number): Promise<Uint8Array | null> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of response.body ?? []) {
    sizeBytes += chunk.length
    if (sizeBytes > bytesMax) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function digestOf(text: string): string {
  return toHex(new Uint8Array(Bun.CryptoHasher.hash('sha256', utf8(text))))
}
