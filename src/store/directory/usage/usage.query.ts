// The usage ledger: appended once per id, summed per organization and time, purged by age. Effects: SQL.

import { and, count, eq, getTableName, gte, inArray, lt, sql } from 'drizzle-orm'
import { assert } from '../../../base/assert.ts'
import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { organizations } from '../organization.table.ts'
import { type Usage, usage } from './usage.table.ts'
import { prepareUsageSums } from './usage-sums.query.ts'

/** Rows beyond a multiple of this are written one by one. Wider statements are no faster. */
const rowsPerStatement = 25

/**
 * Appends rows, adds them to the sums by month and day, and returns how many were new; a row whose id exists is
 * unchanged, and counted no second time. Several statements: atomic only within a transaction of the same store.
 * Prepared once, and raw: there is one row per request.
 */
export function prepareUsageAppend(db: DirectoryDb): (rows: readonly Usage[]) => number {
  const insert = (rows: number) => prepareRaw<never>(db, insertText(rows))
  const [statement, many] = [insert(1), insert(rowsPerStatement)]
  const newest = prepareRaw<{ mark: number }>(db, `SELECT coalesce(max(rowid), 0) AS mark FROM ${getTableName(usage)}`)
  const after = prepareRaw<Pick<Usage, 'id'>>(db, `SELECT id FROM ${getTableName(usage)} WHERE rowid > ?`)
  const addToSums = prepareUsageSums(db)
  return rows => {
    rows.forEach(assertAmounts)
    const mark = newest.get()?.mark ?? 0
    let added = 0
    let next = 0
    for (; next + rowsPerStatement <= rows.length; next += rowsPerStatement) {
      added += many.run(...valuesOf(rows.slice(next, next + rowsPerStatement))).changes
    }
    for (; next < rows.length; next += 1) added += statement.run(...valuesOf(rows.slice(next, next + 1))).changes
    if (added === rows.length) addToSums(rows)
    else if (added > 0) {
      const ids = new Set(after.all(mark).map(({ id }) => id))
      // A row that is given twice is one.
      addToSums(rows.filter(({ id }) => ids.delete(id)))
    }
    return added
  }
}

/** Every column, in binding order. */
const FIELDS = [
  'id',
  'atMs',
  'organizationId',
  'keyPrefix',
  'instanceId',
  'model',
  'upstream',
  'promptTokens',
  'completionTokens',
  'costNanoUsd',
  'outcome',
  'tokensSource',
  'endUser',
  'tags',
  'cachedTokens',
] as const satisfies readonly (keyof Usage)[]

/** The values of each row in turn. Plain loops, because each request has a row. */
function valuesOf(rows: readonly Usage[]): Usage[keyof Usage][] {
  const values: Usage[keyof Usage][] = []
  for (const row of rows) for (const field of FIELDS) values.push(row[field])
  return values
}

function insertText(rows: number): string {
  const names = FIELDS.map(field => usage[field].name).join(', ')
  const values = Array(rows).fill(`(${FIELDS.map(() => '?').join(', ')})`)
  return `INSERT INTO ${getTableName(usage)} (${names}) VALUES ${values.join(', ')} ON CONFLICT (${usage.id.name}) DO NOTHING`
}

function assertAmounts({ promptTokens, completionTokens, cachedTokens, costNanoUsd }: Usage): void {
  const areAmounts =
    isAmount(promptTokens) && isAmount(completionTokens) && isAmount(cachedTokens) && isAmount(costNanoUsd)
  assert(areAmounts, 'the ledger holds whole amounts, none of them negative')
}

function isAmount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0
}

export type UsageSum = {
  readonly requests: number
  readonly promptTokens: bigint
  readonly completionTokens: bigint
  readonly costNanoUsd: bigint
}

/** Exact usage of an organization within [startMs, endMs). */
export function sumUsage(db: DirectoryDb, of: { organizationId: string; startMs: number; endMs: number }): UsageSum {
  // Text, because a sum may exceed what a double holds exactly.
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

/** Whether there is a row of that id. Prepared once, and raw. */
export function prepareUsageLookup(db: DirectoryDb): (id: string) => boolean {
  const statement = prepareRaw<{ one: number }>(
    db,
    `SELECT 1 AS one FROM ${getTableName(usage)} WHERE ${usage.id.name} = ?`,
  )
  return id => statement.get(id) !== null
}

export function findUsage(db: DirectoryDb, id: string): Usage | null {
  return db.select().from(usage).where(eq(usage.id, id)).get() ?? null
}

/**
 * Deletes at most `limit` rows from before a time. Returns how many. It searches organization by organization, so that
 * the index of the sums serves here too: a second index, by time, would make every append slower.
 */
export function purgeUsage(db: DirectoryDb, purge: { beforeMs: number; limit: number }): number {
  const old = oldUsage(db, purge)
  return db.delete(usage).where(inArray(usage.id, old)).returning({ id: usage.id }).all().length
}

/** Exported for the test of SQLite's query plan. SQLite reads the tables of a CROSS JOIN in the order written. */
export function oldUsage(db: DirectoryDb, { beforeMs, limit }: { beforeMs: number; limit: number }) {
  return db
    .select({ id: usage.id })
    .from(organizations)
    .crossJoin(usage)
    .where(and(eq(usage.organizationId, organizations.id), lt(usage.atMs, beforeMs)))
    .limit(limit)
}
