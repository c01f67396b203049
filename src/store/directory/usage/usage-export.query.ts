// Usage of an organization by key, model, day (UTC) and labels, in pieces that each read a bounded number of rows.
// Effects: SQL.

import { type SQL, sql } from 'drizzle-orm'
import type { UsageGroup } from '../../../contract/http/usage-groups.ts'
import type { DirectoryDb } from '../../db.ts'

/** [startMs, endMs). */
type UsagePiece = { readonly organizationId: string; readonly startMs: number; readonly endMs: number }

/** Null in a group that was not requested. Sums are texts: they may exceed what a double holds exactly. */
type UsageGroupRow = {
  readonly key: string | null
  readonly model: string | null
  /** Form: 2026-11-22. */
  readonly day: string | null
  readonly user: string | null
  readonly tags: string | null
  readonly requests: number
  readonly promptTokens: string
  readonly completionTokens: string
  readonly costNanoUsd: string
}

/** End of a piece of about `rows` rows from `startMs` on; rows of one millisecond stay together. */
export function usagePieceEnd(db: DirectoryDb, { organizationId, startMs, endMs }: UsagePiece, rows: number): number {
  const [last] = db.all<{ at_ms: number }>(
    sql`SELECT at_ms FROM usage WHERE organization_id = ${organizationId} AND at_ms >= ${startMs} AND at_ms < ${endMs}
        ORDER BY at_ms LIMIT 1 OFFSET ${rows}`,
  )
  return last === undefined ? endMs : Math.max(last.at_ms, startMs + 1)
}

export function sumUsagePiece(db: DirectoryDb, piece: UsagePiece, by: ReadonlySet<UsageGroup>): UsageGroupRow[] {
  const column = (group: UsageGroup, value: SQL) => (by.has(group) ? value : sql`NULL`)
  return db.all<UsageGroupRow>(
    sql`SELECT ${column('key', sql`key_prefix`)} AS key, ${column('model', sql`model`)} AS model,
          ${column('day', sql`date(at_ms / 1000, 'unixepoch')`)} AS day, ${column('user', sql`end_user`)} AS user,
          ${column('tags', sql`tags`)} AS tags, count(*) AS requests,
          cast(sum(prompt_tokens) AS text) AS promptTokens, cast(sum(completion_tokens) AS text) AS completionTokens,
          cast(sum(cost_nano_usd) AS text) AS costNanoUsd
        FROM usage
        WHERE organization_id = ${piece.organizationId} AND at_ms >= ${piece.startMs} AND at_ms < ${piece.endMs}
        GROUP BY 1, 2, 3, 4, 5`,
  )
}
