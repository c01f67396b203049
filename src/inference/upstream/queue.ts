// The place of a waiting request, and its text for clients. Pure.
//
// Engines report only the length of their queue: vLLM, SGLang and llama-server do, in their metrics. The load header of
// vLLM and the queue time of text-generation-inference come with whole responses, after the wait.

import type { Engine } from '../../config/upstream/kinds.ts'
import type { Owner } from './fair-share.ts'

/** `position`: 1 for the next request. `waitMs`: an estimate. */
export type QueuePlace = { readonly position: number; readonly waitMs: number }

type Waiting = { readonly owner: Owner }

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
/** A longer estimate is left out. */
const waitMsMax = 1_000_000
const STEPS = [1, 2, 3, 5, 10]

/** Members of a dictionary (RFC 9651), `wait` in seconds. */
export function queueText({ position, waitMs }: QueuePlace): string {
  return `position=${stepped(position)}${waitMs <= waitMsMax ? `, wait=${stepped(waitMs / 1_000)}` : ''}`
}

/** Rounds up to 1, 2, 3, 5, 10, 20, 30, 50 …: exact values would count the requests of other clients. */
export function stepped(value: number): number {
  const bounded = Math.min(Math.max(value, 1), valueMax)
  const scale = 10 ** Math.floor(Math.log10(bounded))
  return scale * (STEPS.find(step => bounded <= step * scale) ?? 10)
}

/**
 * Sum of a gauge over its labels. Null if it is absent, or if a value is not a plausible count. A last line without its
 * end does not count: the text may be cut. Other lines are passed over without a copy.
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

/**
 * Turns until `own` is served, its own turn included: another key of its organization, and then another organization,
 * goes first at most as often as its own does. `waiters`: in order of arrival for each key; without `own` for a new
 * request.
 */
export function turnsOf(own: Waiting, waiters: Iterable<Waiting>): number {
  const { organizationId, keyPrefix } = own.owner
  const [keys, organizations] = [new Map<string, number>(), new Map<string, number>()]
  let turns = 1
  let isFound = false
  for (const waiter of waiters) {
    const { owner } = waiter
    isFound ||= waiter === own
    if (owner.organizationId !== organizationId) countIn(organizations, owner.organizationId)
    else if (owner.keyPrefix !== keyPrefix) countIn(keys, owner.keyPrefix)
    else if (!isFound) turns += 1
  }
  for (const others of [keys, organizations]) {
    const most = turns
    for (const count of others.values()) turns += Math.min(count, most)
  }
  return turns
}

function countIn(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1)
}
