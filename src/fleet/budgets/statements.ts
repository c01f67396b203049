// Leases of budgets in the directory. Effects: statements to PostgreSQL.

import type { Sql } from '../postgres.ts'

/** A budget in a month (UTC, as 2026-11): of a key, or of the organization if `keyPrefix` is empty. */
export type Scope = { readonly organizationId: string; readonly keyPrefix: string; readonly month: string }

export type Amounts = { readonly nanoUsd: number; readonly tokens: number }

export type BudgetLease = Scope & Amounts

export type LeaseReply = {
  readonly granted: Amounts
  /** The part of the budget that no host has leased; null if there is no limit of that kind. */
  readonly left: { readonly nanoUsd: number | null; readonly tokens: number | null }
  /** False if nothing could be granted, because other hosts have not registered their leases. */
  readonly isKnown: boolean
  readonly timeline: number
}

export type LeaseRequest = {
  /** The largest of the amounts that are used, reserved or granted according to this host. */
  readonly held: Amounts
  /** Required amount, spent and reserved together. Without it nothing more is granted. */
  readonly need: Amounts
  /** Desired amount, granted if there is room. */
  readonly want: Amounts
}

type LeaseRow = {
  readonly nano_usd: number | null
  readonly tokens: number | null
  readonly left_nano_usd: number | null
  readonly left_tokens: number | null
  readonly is_known: boolean | null
  readonly timeline: number | null
}

/** Leases a block. Null if the fleet does not have this host, or the organization. Fault `fleet.unavailable`. */
export async function leaseBudget(
  sql: Sql,
  hostId: string,
  { organizationId, keyPrefix, month }: Scope,
  { held, need, want }: LeaseRequest,
): Promise<LeaseReply | null> {
  const [row] = await sql.query<LeaseRow>('SELECT * FROM lease_allowance($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)', [
    ...[hostId, organizationId, keyPrefix, month],
    ...[held.nanoUsd, held.tokens, need.nanoUsd, need.tokens, want.nanoUsd, want.tokens],
  ])
  if (row === undefined || row.nano_usd === null || row.tokens === null) return null
  return {
    granted: { nanoUsd: row.nano_usd, tokens: row.tokens },
    left: { nanoUsd: row.left_nano_usd, tokens: row.left_tokens },
    isKnown: row.is_known === true,
    timeline: row.timeline ?? 0,
  }
}

/** Returns a block, except for an amount. Fault `fleet.unavailable`. */
export async function releaseBudget(
  sql: Sql,
  hostId: string,
  { organizationId, keyPrefix, month }: Scope,
  keep: Amounts,
): Promise<void> {
  await sql.query('SELECT return_allowance($1, $2, $3, $4, $5, $6)', [
    ...[hostId, organizationId, keyPrefix, month],
    ...[keep.nanoUsd, keep.tokens],
  ])
}

const rowsPerStatement = 500

/** Registers leases, and returns the timeline of the server that stores them. Fault `fleet.unavailable`. */
export async function registerLeases(sql: Sql, hostId: string, held: readonly BudgetLease[]): Promise<number> {
  let timeline = 0
  for (let at = 0; at === 0 || at < held.length; at += rowsPerStatement) {
    const rows = held.slice(at, at + rowsPerStatement).map(({ organizationId, keyPrefix, month, nanoUsd, tokens }) => ({
      organization_id: organizationId,
      key_prefix: keyPrefix,
      month,
      nano_usd: nanoUsd,
      tokens,
    }))
    const [row] = await sql.query<{ timeline: number | null }>(
      'SELECT enter_allowances($1, $2::jsonb, $3) AS timeline',
      [...[hostId, JSON.stringify(rows), at + rowsPerStatement >= held.length]],
    )
    timeline = row?.timeline ?? 0
  }
  return timeline
}
