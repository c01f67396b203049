// Billing periods, ready time and money (contract 2.3). Pure. Times are milliseconds since the epoch, money
// micro-dollars.

import { assert } from '../base/assert.ts'
import type { InstanceChange } from '../store/directory/instance.table.ts'

/** A half-open interval: [startMs, endMs). */
export type Period = { readonly startMs: number; readonly endMs: number }

/**
 * Longest billing period. A record must be kept until the end of the period in which it was billed. No share: a time.
 */
export const periodDaysMax = 31

/**
 * Returns the monthly period around `nowMs`, anchored to signup, in UTC. Period k starts k months after signup at the
 * same time of day. A month without that day (29th to 31st) starts on its last day, and later months return to the
 * signup's day. Before signup (the clock was set back) it is the first period.
 */
export function billingPeriod(signupMs: number, nowMs: number): Period {
  const signup = new Date(signupMs)
  const now = new Date(nowMs)
  const months = (now.getUTCFullYear() - signup.getUTCFullYear()) * 12 + now.getUTCMonth() - signup.getUTCMonth()
  const thisMonthMs = addMonths(signup, Math.max(0, months))
  const index = Math.max(0, thisMonthMs > nowMs ? months - 1 : months)
  return { startMs: addMonths(signup, index), endMs: addMonths(signup, index + 1) }
}

function addMonths(anchor: Date, months: number): number {
  const year = anchor.getUTCFullYear()
  const month = anchor.getUTCMonth() + months
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate()
  const midnightMs = Date.UTC(year, month, Math.min(anchor.getUTCDate(), lastDay))
  return midnightMs + (anchor.getTime() - Date.UTC(year, anchor.getUTCMonth(), anchor.getUTCDate()))
}

type StatusChange = Pick<InstanceChange, 'instanceId' | 'status' | 'atMs'>
type ReadySpan = { readonly instanceId: string; readonly fromMs: number; readonly toMs: number }

/**
 * Returns when instances were ready within [startMs, min(endMs, nowMs)). An instance counts from ready until its next
 * change: delete accepted, or failed. `changes`: complete logs in the order written. An interval in which the clock was
 * set back is left out.
 */
export function readySpans(
  changes: readonly StatusChange[],
  within: Period & { readonly nowMs: number },
): readonly ReadySpan[] {
  const untilMs = Math.min(within.endMs, within.nowMs)
  const spans: ReadySpan[] = []
  const add = (instanceId: string, sinceMs: number, endMs: number) => {
    const [fromMs, toMs] = [Math.max(sinceMs, within.startMs), Math.min(endMs, untilMs)]
    if (toMs > fromMs) spans.push({ instanceId, fromMs, toMs })
  }
  const readySinceMs = new Map<string, number>()
  for (const { instanceId, status, atMs } of changes) {
    const sinceMs = readySinceMs.get(instanceId)
    if (sinceMs !== undefined) add(instanceId, sinceMs, atMs)
    if (status === 'ready') readySinceMs.set(instanceId, atMs)
    else readySinceMs.delete(instanceId)
  }
  for (const [instanceId, sinceMs] of readySinceMs) add(instanceId, sinceMs, untilMs)
  return spans
}

/** Returns the milliseconds of all ready spans together. */
export function readyMs(changes: readonly StatusChange[], within: Period & { readonly nowMs: number }): number {
  return readySpans(changes, within).reduce((totalMs, { fromMs, toMs }) => totalMs + toMs - fromMs, 0)
}

export function hours(ms: number): number {
  return ms / 3_600_000
}

/** Parses decimal text such as `12.5` to micro-dollars. The configuration schema has checked its form. */
export function parseUsd(text: string): bigint {
  assert(/^[0-9]+(\.[0-9]{1,6})?$/.test(text), 'an amount is a plain decimal with at most six places')
  const [whole = '', fraction = ''] = text.split('.')
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'))
}

/** Formats `12.50`: at least two decimals, at most six, no trailing zeros beyond the second. */
export function formatUsd(microUsd: bigint): string {
  assert(microUsd >= 0n, 'an amount is not negative')
  const fraction = (microUsd % 1_000_000n)
    .toString()
    .padStart(6, '0')
    .replace(/0{1,4}$/, '')
  return `${microUsd / 1_000_000n}.${fraction}`
}
