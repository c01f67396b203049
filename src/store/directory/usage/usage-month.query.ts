// Sums of usage by calendar month (UTC), of a key or of a whole organization, over all hosts. Effects: SQL.

import { sql } from 'drizzle-orm'
import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { type UsageMonth, usageMonths } from './usage-month.table.ts'

/** The sum of a key, or of an organization, in a month. */
export type MonthScope = {
  readonly organizationId: string
  /** Empty: all keys of the organization. */
  readonly keyPrefix: string
  /** As 2026-11. */
  readonly month: string
}

export type MonthSum = Pick<UsageMonth, 'requests' | 'promptTokens' | 'completionTokens' | 'costNanoUsd'>

export const noUsage: MonthSum = { requests: 0, promptTokens: 0, completionTokens: 0, costNanoUsd: 0 }

/** The calendar month (UTC) of a time, as 2026-11. */
export function monthOf(atMs: number): string {
  // Written so that NaN is never taken for a time of that month.
  if (!(atMs >= latest.startMs && atMs < latest.endMs)) {
    const month = new Date(atMs).toISOString().slice(0, 7)
    latest = { month, startMs: Date.parse(`${month}-01T00:00:00.000Z`), endMs: monthEndMs(month) }
  }
  return latest.month
}

/** Cache of the last month: each request needs it several times. */
let latest = { month: '', startMs: 0, endMs: 0 }

/** Start of the next month. */
export function monthEndMs(month: string): number {
  const [year = 0, number = 0] = month.split('-').map(Number)
  return Date.UTC(year, number)
}

/**
 * Over all hosts. Prepared once, and raw: admission needs it for each request of a key with a budget. A sum stops at
 * the largest integer that a double holds exactly.
 */
export function prepareMonthSum(db: DirectoryDb): (scope: MonthScope) => MonthSum {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, coalesce(sum(${column}), 0))`
  const query = prepareRaw<MonthSum>(
    db,
    `SELECT ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
     FROM usage_months WHERE organization_id = ? AND month = ? AND key_prefix = ?`,
  )
  return ({ organizationId, month, keyPrefix }) => query.get(organizationId, month, keyPrefix) ?? noUsage
}

/** Deletes at most `limit` sums of months before that one. Returns how many. */
export function purgeUsageMonths(db: DirectoryDb, { before, limit }: { before: string; limit: number }): number {
  const { organizationId, month, keyPrefix, hostId } = usageMonths
  return db
    .delete(usageMonths)
    .where(
      sql`(${organizationId}, ${month}, ${keyPrefix}, ${hostId}) IN (
        SELECT organization_id, month, key_prefix, host_id FROM usage_months WHERE month < ${before} LIMIT ${limit})`,
    )
    .returning({ month })
    .all().length
}
