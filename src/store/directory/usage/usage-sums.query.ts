// Adds rows of the usage ledger to this host's sums by month and by day. Effects: SQL.

import { dayMs } from '../../../base/time.ts'
import { type DirectoryDb, prepareRaw } from '../../db.ts'
import type { Usage } from './usage.table.ts'
import { ownHost } from './usage-month.query.ts'

/** Rows of one key and model on one day, as one of them would be. */
type Group = Pick<Usage, 'organizationId' | 'keyPrefix' | 'model' | 'atMs'> & {
  requests: number
  promptTokens: number
  completionTokens: number
  costNanoUsd: number
  /** In the hours of the day after the one at which the organization's billing period begins. */
  lateCostNanoUsd: number
}

/** A sum stops at the largest integer that a double holds exactly. */
const grown = (columns: readonly string[]) =>
  columns.map(column => `${column} = min(${Number.MAX_SAFE_INTEGER}, ${column} + excluded.${column})`).join(', ')

/** ?1 organization, ?2 key or '' for the organization, ?3 time, ?4 to ?7 amounts. No calendar reaches beyond 9999. */
const addToMonth = `INSERT INTO usage_months VALUES
  (?1, coalesce(strftime('%Y-%m', cast(?3 AS INTEGER) / 1000, 'unixepoch'), '9999-12'), ?2, ${ownHost}, ?4, ?5, ?6, ?7, 0)
  ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET
    requests = requests + excluded.requests, ${grown(['prompt_tokens', 'completion_tokens', 'cost_nano_usd'])}`

/** Parameters of `addToMonth`, and ?8 the late cost, ?9 the model. */
const addToDay = `INSERT INTO usage_days VALUES
  (?1, ?2, coalesce(strftime('%Y-%m-%d', cast(?3 AS INTEGER) / 1000, 'unixepoch'), '9999-12-31'), ?9, ${ownHost}, ?4, ?5, ?6, ?7, ?8, 0)
  ON CONFLICT (organization_id, key_prefix, day, model, host_id) DO UPDATE SET
    requests = requests + excluded.requests,
    ${grown(['prompt_tokens', 'completion_tokens', 'cost_nano_usd', 'late_cost_nano_usd'])}`

/**
 * Adds rows that are in the ledger and in no sum yet. Prepared once, and raw: each batch needs it. Rows of one key on
 * one day cost one change of each sum, however many they are.
 */
export function prepareUsageSums(db: DirectoryDb): (rows: readonly Usage[]) => void {
  const [toMonth, toDay] = [prepareRaw<never>(db, addToMonth), prepareRaw<never>(db, addToDay)]
  const created = prepareRaw<{ at: number }>(db, 'SELECT created_at_ms AS at FROM organizations WHERE id = ?')
  return rows => {
    for (const group of grouped(rows, organizationId => (created.get(organizationId)?.at ?? 0) % dayMs)) {
      const { organizationId, keyPrefix, model, atMs, lateCostNanoUsd } = group
      const amounts = [group.requests, group.promptTokens, group.completionTokens, group.costNanoUsd]
      toMonth.run(organizationId, '', atMs, ...amounts)
      toMonth.run(organizationId, keyPrefix, atMs, ...amounts)
      toDay.run(organizationId, keyPrefix, atMs, ...amounts, lateCostNanoUsd, model)
    }
  }
}

/** `beginMsOf`: time of day at which billing periods of an organization begin; asked for once for each group. */
function grouped(rows: readonly Usage[], beginMsOf: (organizationId: string) => number): Iterable<Group> {
  const groups = new Map<string, { readonly group: Group; readonly beginMs: number }>()
  let found: { readonly group: Group; readonly beginMs: number } | undefined
  for (const row of rows) {
    // Rows that follow each other are mostly of one group: making its name costs more than all else.
    if (found === undefined || !isInGroup(row, found.group)) {
      const { organizationId, keyPrefix, model, atMs } = row
      const name = `${organizationId}\n${keyPrefix}\n${dayOf(atMs)}\n${model}`
      found = groups.get(name)
      if (found === undefined) {
        const none = { requests: 0, promptTokens: 0, completionTokens: 0, costNanoUsd: 0, lateCostNanoUsd: 0 }
        found = { group: { organizationId, keyPrefix, model, atMs, ...none }, beginMs: beginMsOf(organizationId) }
        groups.set(name, found)
      }
    }
    const { group, beginMs } = found
    const isLate = row.atMs % dayMs >= beginMs
    group.requests += 1
    group.promptTokens = sum(group.promptTokens, row.promptTokens)
    group.completionTokens = sum(group.completionTokens, row.completionTokens)
    group.costNanoUsd = sum(group.costNanoUsd, row.costNanoUsd)
    group.lateCostNanoUsd = sum(group.lateCostNanoUsd, isLate ? row.costNanoUsd : 0)
  }
  return groups.values().map(({ group }) => group)
}

function isInGroup(row: Usage, group: Group): boolean {
  return (
    row.organizationId === group.organizationId &&
    row.keyPrefix === group.keyPrefix &&
    row.model === group.model &&
    dayOf(row.atMs) === dayOf(group.atMs)
  )
}

function dayOf(atMs: number): number {
  return Math.floor(atMs / dayMs)
}

function sum(a: number, b: number): number {
  return Math.min(Number.MAX_SAFE_INTEGER, a + b)
}
