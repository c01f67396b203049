// Sends a worker a prompt with a known answer over its socket before it serves, because engines have returned garbage
// without an error. Effects: its socket.

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

/**
 * Checks the answer. Faults, with digests instead of texts: host.command_failed (another answer, or none),
 * host.command_timeout.
 */
export async function checkGolden(golden: GoldenAnswer, asking: Asking): Promise<void> {
  const { prompt, maxTokens, expected } = golden
  const { content } = await complete({ prompt, maxTokens, alternatives: 0 }, asking)
  if (content.startsWith(expected)) return
  throw new Fault(
    'host.command_failed',
    `golden answer: SHA-256 ${digestOf(expected)} is expected, ${digestOf(content)} is the SHA-256 of its answer`,
  )
}

export function decodeText(bytes: readonly number[]): string | null {
  return resultOr(() => fromUtf8(Uint8Array.from(bytes)), null)
}

/** The part of llama-server's response to /completion that is used here. */
export const Completion = Type.Object({
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

/** Requests a greedy completion. Faults: host.command_failed, host.command_timeout. */
export async function complete({ prompt, maxTokens, alternatives }: Question, asking: Asking): Promise<Completion> {
  const timeout = AbortSignal.timeout(asking.timeoutMs)
  const failed = (problem: string, cause?: unknown) =>
    new Fault('host.command_failed', `golden answer: ${problem}`, { cause })
  try {
    const response = await fetch('http://built-in/completion', {
      unix: asking.socket,
      method: 'POST',
      // Uses a new connection, because a kept one may lead to an earlier process.
      keepalive: false,
      // A redirect would lead away from the socket.
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

/** Reads the body; null if it is longer than `bytesMax`. */
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
