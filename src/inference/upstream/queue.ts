// The place of a waiting request, and its text for clients. Pure.
//
// Engines report only the length of their queue: vLLM, SGLang and llama-server do, in their metrics. The load header of
// vLLM and the queue time of text-generation-inference arrive with complete responses, after the wait.

import type { Engine } from '../../config/upstream/kinds.ts'

/** `position`: 1 for the next request. `waitMs`: an estimate; null if unknown. */
export type QueuePlace = { readonly position: number; readonly waitMs: number | null }

/** Header of a response whose request waits or has waited. */
export const queueHeader = 'x-strongroom-queue'

/** Engines' gauges of waiting requests (Prometheus text format). */
export const WAITING_GAUGES: Partial<Record<Engine, string>> = {
  vllm: 'vllm:num_requests_waiting',
  sglang: 'sglang:num_queue_reqs',
  'llama-server': 'llamacpp:requests_deferred',
}

/**
 * Largest plausible number.
 * No share: bounds one number.
 */
const valueMax = 1_000_000
/** Longer estimates are omitted. */
const waitMsMax = 1_000_000
const STEPS = [1, 2, 3, 5, 10]

/** Writes the members of a dictionary (RFC 9651), `wait` in seconds. */
export function queueText({ position, waitMs }: QueuePlace): string {
  const wait = waitMs !== null && waitMs <= waitMsMax ? `, wait=${stepped(waitMs / 1_000)}` : ''
  return `position=${stepped(position)}${wait}`
}

/**
 * Rounds up to 1, 2, 3, 5, 10, 20, 30, 50 …: estimates are no more exact, and a client cannot count the requests of
 * others beyond three.
 */
export function stepped(value: number): number {
  const bounded = Math.min(Math.max(value, 1), valueMax)
  const scale = 10 ** Math.floor(Math.log10(bounded))
  return scale * (STEPS.find(step => bounded <= step * scale) ?? 10)
}

/**
 * Returns the sum of a gauge over its labels. Null if it is absent, or if a value is not a plausible count. Ignores a
 * last line without its end, because the text may be cut off. Skips other lines without copying them.
 */
export function gaugeSum(metrics: string, name: string): number | null {
  const text = `\n${metrics}`
  let sum: number | null = null
  for (let at = text.indexOf(`\n${name}`); at >= 0; at = text.indexOf(`\n${name}`, at + 1)) {
    const line = text.slice(at + 1, Math.max(text.indexOf('\n', at + 1), at + 1))
    if (!['{', ' '].includes(line[name.length] ?? '')) continue
    const value = Number(line.slice(line.lastIndexOf(' ') + 1))
    if (!Number.isInteger(value) || value < 0 || value > valueMax) return null
    sum = (sum ?? 0) + value
  }
  return sum
}
