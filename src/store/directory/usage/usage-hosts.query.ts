// Sums of usage by host: this host's own for its budgets, and those of other hosts, which join its own rows in a bill.
// Effects: SQL.

import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { dayOf, noUsage } from './periods.ts'
import { type MonthScope, type MonthSum, ownHost } from './usage-month.query.ts'

/** Prepared once, and raw: in a fleet, admission needs it for each request of a key with a budget. */
export function prepareOwnMonthSum(db: DirectoryDb): (scope: MonthScope) => MonthSum {
  const query = prepareRaw<MonthSum>(
    db,
    `SELECT requests, prompt_tokens AS promptTokens, completion_tokens AS completionTokens, cost_nano_usd AS costNanoUsd
     FROM usage_months WHERE organization_id = ? AND month = ? AND key_prefix = ? AND host_id = ${ownHost}`,
  )
  return ({ organizationId, month, keyPrefix }) => query.get(organizationId, month, keyPrefix) ?? noUsage
}

/**
 * Nano-dollars that other hosts of the fleet have spent for an organization within [startMs, endMs), as far as they
 * have reported. Both ends are at the time of day at which the organization was created, as billing periods are.
 */
export function prepareCostOfOthers(
  db: DirectoryDb,
): (of: { organizationId: string; startMs: number; endMs: number }) => bigint {
  // Text, because the sum may exceed what a double holds exactly.
  const query = prepareRaw<{ cost: string }>(
    db,
    `SELECT cast(coalesce(sum(CASE day WHEN ?2 THEN late_cost_nano_usd WHEN ?3 THEN cost_nano_usd - late_cost_nano_usd
         ELSE cost_nano_usd END), 0) AS text) AS cost
     FROM usage_days WHERE organization_id = ?1 AND day >= ?2 AND day <= ?3 AND host_id <> ${ownHost}`,
  )
  return ({ organizationId, startMs, endMs }) =>
    BigInt(query.get(organizationId, dayOf(startMs), dayOf(endMs))?.cost ?? 0)
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
     WHERE organization_id = ?1 AND day >= ?2 AND day <= ?3 AND host_id <> ${ownHost} AND (day, key_prefix, model) > (?4, ?5, ?6)
     GROUP BY day, key_prefix, model ORDER BY day, key_prefix, model LIMIT ?7`,
  )
  return ({ organizationId, from, to }, after, limit) => {
    const { day, keyPrefix, model } = after ?? { day: from, keyPrefix: '', model: '' }
    return query.all(organizationId, day, to, day, keyPrefix, model, limit)
  }
}
