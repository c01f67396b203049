// Actions of hosts that affect the whole fleet, as recorded in the directory. Effects: statements to PostgreSQL.

import { iso } from '../../base/clock.ts'
import type { HostAction } from '../../contract/admin/events.ts'
import type { Sql } from '../postgres.ts'

export type ActionsQuery = { readonly sinceMs: number | null; readonly limit: number }

type ActionRow = Omit<HostAction, 'at'> & { readonly atMs: number }

/** Returns the newest `limit` actions, oldest first. */
export async function listActions(sql: Sql, { sinceMs, limit }: ActionsQuery): Promise<HostAction[]> {
  const rows = await sql.query<ActionRow>(
    `SELECT a.seq, a.at_ms AS "atMs", a.host_name AS host, a.database_role, a.action, a.subject, a.detail,
       (SELECT o.slug FROM organizations o WHERE o.id = a.organization_id) AS organization
     FROM host_actions a WHERE $1::bigint IS NULL OR a.at_ms >= $1 ORDER BY a.seq DESC LIMIT $2`,
    [sinceMs, limit],
  )
  return rows.toReversed().map(({ atMs, ...row }) => ({ ...row, at: iso(atMs) }))
}
