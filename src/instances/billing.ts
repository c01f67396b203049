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

/**
 * Returns the milliseconds for which instances were ready within [startMs, min(endMs, nowMs)), summed. An instance
 * counts from ready until its next change: delete accepted, or failed. `changes`: complete logs in the order written.
 * An interval in which the clock was set back counts as 0.
 */
export function readyMs(
  changes: readonly Pick<InstanceChange, 'instanceId' | 'status' | 'atMs'>[],
  within: Period & { readonly nowMs: number },
): number {
  const untilMs = Math.min(within.endMs, within.nowMs)
  const overlapMs = (fromMs: number, toMs: number) =>
    Math.max(0, Math.min(toMs, untilMs) - Math.max(fromMs, within.startMs))
  const readySinceMs = new Map<string, number>()
  let totalMs = 0
  for (const change of changes) {
    const sinceMs = readySinceMs.get(change.instanceId)
    if (sinceMs !== undefined) totalMs += overlapMs(sinceMs, change.atMs)
    if (change.status === 'ready') readySinceMs.set(change.instanceId, change.atMs)
    else readySinceMs.delete(change.instanceId)
  }
  for (const sinceMs of readySinceMs.values()) totalMs += overlapMs(sinceMs, untilMs)
  return totalMs
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
