// Sums of usage by host: this host's own for its budgets, and those of other hosts, which join its own rows in a bill.
// Effects: SQL.

import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { dayOf, noUsage } from './periods.ts'
import { isSumOf, type MonthScope, type MonthSum } from './usage-month.query.ts'

/** Prepared once, and raw: in a fleet, admission needs it for each request of a key with a budget. */
export function prepareOwnMonthSum(db: DirectoryDb): (scope: MonthScope) => MonthSum {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, coalesce(sum(${column}), 0))`
  const query = prepareRaw<MonthSum>(
    db,
    `SELECT ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
     FROM usage_months WHERE organization_id = ? AND month = ? AND key_prefix = ? AND ${isSumOf()}`,
  )
  return ({ organizationId, month, keyPrefix }) => query.get(organizationId, month, keyPrefix) ?? noUsage
}

/** Nano-dollars. */
export type HostCosts = { readonly own: bigint; readonly others: bigint }

/**
 * Cost of an organization within [startMs, endMs) by the sums of this host, and of other hosts as far as they have
 * reported. Own sums are 0 on a single host, whose rows are complete. Both ends are at the time of day at which the
 * organization was created, as billing periods are.
 */
export function prepareHostCosts(
  db: DirectoryDb,
): (of: { organizationId: string; startMs: number; endMs: number }) => HostCosts {
  // Text, because a sum may exceed what a double holds exactly.
  const query = prepareRaw<{ is_own: number; cost: string }>(
    db,
    `SELECT ${isSumOf()} AS is_own, cast(sum(CASE day WHEN ?2 THEN late_cost_nano_usd
         WHEN ?3 THEN cost_nano_usd - late_cost_nano_usd ELSE cost_nano_usd END) AS text) AS cost
     FROM usage_days WHERE organization_id = ?1 AND day >= ?2 AND day <= ?3
       AND (EXISTS (SELECT 1 FROM replica) OR NOT ${isSumOf()}) GROUP BY 1`,
  )
  return ({ organizationId, startMs, endMs }) => {
    const rows = query.all(organizationId, dayOf(startMs), dayOf(endMs))
    const costOf = (isOwn: number) => BigInt(rows.find(row => row.is_own === isOwn)?.cost ?? 0)
    return { own: costOf(1), others: costOf(0) }
  }
}

export type HostDaySum = MonthSum & { readonly keyPrefix: string; readonly day: string; readonly model: string }

type HostDayKey = Pick<HostDaySum, 'keyPrefix' | 'day' | 'model'>

/**
 * A page of the sums of other hosts for an organization on days `from` to `to` (as 2026-11-30, both included), by day,
 * key and model, behind the place `after`; null means the first page. At most `limit` rows.
 */
export type ReadOthersPage = (
  of: { readonly organizationId: string; readonly from: string; readonly to: string },
  after: HostDayKey | null,
  limit: number,
) => HostDaySum[]

export function prepareDaysOfOthers(db: DirectoryDb): ReadOthersPage {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, sum(${column}))`
  const query = prepareRaw<HostDaySum>(
    db,
    `SELECT day, key_prefix AS keyPrefix, model, ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
     FROM usage_days
     WHERE organization_id = ?1 AND day >= ?2 AND day <= ?3 AND NOT ${isSumOf()} AND (day, key_prefix, model) > (?4, ?5, ?6)
     GROUP BY day, key_prefix, model ORDER BY day, key_prefix, model LIMIT ?7`,
  )
  return ({ organizationId, from, to }, after, limit) => {
    const { day, keyPrefix, model } = after ?? { day: from, keyPrefix: '', model: '' }
    return query.all(organizationId, day, to, day, keyPrefix, model, limit)
  }
}
