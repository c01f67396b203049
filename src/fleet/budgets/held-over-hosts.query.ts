// Budget blocks that all hosts hold, according to the directory. Effects: statements to PostgreSQL.

import type { Sql } from '../postgres.ts'
import type { BudgetLease } from './statements.ts'

/**
 * Returns for a month, by budget, the amounts granted to hosts and neither returned nor reported as spent. An empty
 * `keyPrefix` is the organization's own budget. If `organizationId` is null, returns the budgets of all organizations,
 * without those of keys. Fault `fleet.unavailable`.
 */
export async function heldOverHosts(
  sql: Sql,
  { month, organizationId }: { readonly month: string; readonly organizationId: string | null },
): Promise<Omit<BudgetLease, 'month'>[]> {
  const which = organizationId === null ? "a.key_prefix = ''" : 'a.organization_id = $2'
  return await sql.query<Omit<BudgetLease, 'month'>>(
    `SELECT a.organization_id AS "organizationId", a.key_prefix AS "keyPrefix",
       least(sum(greatest(0, a.nano_usd - coalesce(u.nano_usd, 0))), ${most})::bigint AS "nanoUsd",
       least(sum(greatest(0, a.tokens - coalesce(u.tokens, 0))), ${most})::bigint AS tokens
     FROM allowances a LEFT JOIN LATERAL (
       SELECT sum(cost_nano_usd) AS nano_usd, sum(prompt_tokens + completion_tokens) AS tokens FROM usage_months u
       WHERE (u.organization_id, u.key_prefix, u.month) = (a.organization_id, a.key_prefix, a.month)
         AND split_part(u.host_id, '/', 1) = a.host_id
     ) u ON true
     WHERE a.month = $1 AND ${which} GROUP BY 1, 2`,
    organizationId === null ? [month] : [month, organizationId],
  )
}

const most = Number.MAX_SAFE_INTEGER
