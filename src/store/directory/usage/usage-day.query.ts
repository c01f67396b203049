// Usage by day (UTC) and model over all hosts, read page by page, and what other hosts have of it. Effects: SQL.

import { sql } from 'drizzle-orm'
import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { type UsageDay, usageDays } from './usage-day.table.ts'

/** A key of an organization and its first and last day, as 2026-11-30. */
export type DayScope = {
  readonly organizationId: string
  readonly keyPrefix: string
  readonly from: string
  readonly to: string
}

export type DaySum = Omit<UsageDay, 'organizationId' | 'keyPrefix' | 'hostId' | 'lateCostNanoUsd' | 'isHeld'>

/** Pages are ordered by day, then by the model's UTF-8 bytes. */
export type DayPlace = Pick<UsageDay, 'day' | 'model'>

/** `isLast`: no page follows. */
export type DaysPage = { readonly rows: readonly DaySum[]; readonly isLast: boolean }

/** At most `limit` rows after `after`; null for the beginning. */
export type ReadDaysPage = (scope: DayScope, after: DayPlace | null, limit: number) => DaysPage

export function prepareDaysPage(db: DirectoryDb): ReadDaysPage {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, sum(${column}))`
  const query = (comparison: '>' | '>=') =>
    prepareRaw<DaySum>(
      db,
      `SELECT day, model, ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
         ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
       FROM usage_days
       WHERE organization_id = ? AND key_prefix = ? AND (day, model) ${comparison} (?, ?) AND day <= ?
       GROUP BY day, model ORDER BY day, model LIMIT ?`,
    )
  const [first, next] = [query('>='), query('>')]
  return ({ organizationId, keyPrefix, from, to }, after, limit) => {
    const { day, model } = after ?? { day: from, model: '' }
    const statement = after === null ? first : next
    const rows = statement.all(organizationId, keyPrefix, day, model, to, limit + 1)
    return { rows: rows.slice(0, limit), isLast: rows.length <= limit }
  }
}

/** Deletes at most `limit` sums of days before that one. Returns how many. */
export function purgeUsageDays(db: DirectoryDb, { before, limit }: { before: string; limit: number }): number {
  const { organizationId, keyPrefix, day, model, hostId } = usageDays
  return db
    .delete(usageDays)
    .where(
      sql`(${organizationId}, ${keyPrefix}, ${day}, ${model}, ${hostId}) IN (
        SELECT organization_id, key_prefix, day, model, host_id FROM usage_days WHERE day < ${before} LIMIT ${limit})`,
    )
    .returning({ day })
    .all().length
}
