// The usage ledger: appended once per id, summed per organization and time. Effects: SQL.

import { and, count, eq, gte, lt, sql } from 'drizzle-orm'
import { assert } from '../base/assert.ts'
import type { Db } from './db.ts'
import { type Usage, usage } from './usage.table.ts'

/**
 * Appends rows; false: a row of this id is there already, and stays as it is. Prepared once: there is one row per request.
 * Within a transaction of the same store it is part of it, as both use one connection.
 */
export function prepareUsageAppend(db: Db): (row: Usage) => boolean {
  const { placeholder } = sql
  const insert = db
    .insert(usage)
    .values({
      id: placeholder('id'),
      atMs: placeholder('atMs'),
      organizationId: placeholder('organizationId'),
      keyPrefix: placeholder('keyPrefix'),
      instanceId: placeholder('instanceId'),
      model: placeholder('model'),
      upstream: placeholder('upstream'),
      promptTokens: placeholder('promptTokens'),
      completionTokens: placeholder('completionTokens'),
      costNanoUsd: placeholder('costNanoUsd'),
      outcome: placeholder('outcome'),
    })
    .onConflictDoNothing({ target: usage.id })
    .returning({ id: usage.id })
    .prepare()
  return row => {
    for (const amount of [row.promptTokens, row.completionTokens, row.costNanoUsd]) {
      assert(Number.isSafeInteger(amount) && amount >= 0, 'the ledger holds whole amounts, none of them negative')
    }
    return insert.all(row).length === 1
  }
}

export type UsageSum = {
  readonly requests: number
  readonly promptTokens: bigint
  readonly completionTokens: bigint
  readonly costNanoUsd: bigint
}

/** What an organization used within [startMs, endMs), exactly. */
export function sumUsage(db: Db, of: { organizationId: string; startMs: number; endMs: number }): UsageSum {
  // As text: a sum may be beyond what a double holds exactly.
  const total = (column: typeof usage.promptTokens | typeof usage.completionTokens | typeof usage.costNanoUsd) =>
    sql<string>`cast(coalesce(sum(${column}), 0) as text)`
  const row = db
    .select({
      requests: count(),
      promptTokens: total(usage.promptTokens),
      completionTokens: total(usage.completionTokens),
      costNanoUsd: total(usage.costNanoUsd),
    })
    .from(usage)
    .where(and(eq(usage.organizationId, of.organizationId), gte(usage.atMs, of.startMs), lt(usage.atMs, of.endMs)))
    .get()
  return {
    requests: row?.requests ?? 0,
    promptTokens: BigInt(row?.promptTokens ?? 0),
    completionTokens: BigInt(row?.completionTokens ?? 0),
    costNanoUsd: BigInt(row?.costNanoUsd ?? 0),
  }
}

export function findUsage(db: Db, id: string): Usage | null {
  return db.select().from(usage).where(eq(usage.id, id)).get() ?? null
}
