// Compares this host's copy with the directory by checksums of rows. Effects: statements to PostgreSQL, SQL on the
// host's database.
//
// A page of rows is read here at once, while the host has nothing to report, and then there. If the directory still has
// the version of the copy, both are of one moment.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { type DirectoryDb, prepareRaw } from '../../store/db.ts'
import { sqlStateOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import { keyJson } from '../replica/statements.ts'
import { REPLICA_TABLES, type ReplicaTable } from '../replica/tables.ts'
import { rowsPerPage } from './feed.ts'

export type ChecksumDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Pick<Logger, 'warn'>
  /** Applies changes up to now. */
  readonly catchUp: () => Promise<void>
  readonly signal: AbortSignal
}

/** Sums have their own reading, and each host removes those of others by its own retention. */
const CHECKED = REPLICA_TABLES.filter(({ isSum }) => isSum !== true)

/** Attempts to see both sides of a page at one version. */
const [attemptsMax, attemptEveryMs] = [50, 200]
/** SQLSTATE of a directory whose schema is older: undefined_column. */
const olderSchema = '42703'

type Position = { readonly version: number; readonly timeline: number; readonly isQuiet: number }
/** With the columns of the key. */
type Row = Readonly<Record<string, string>> & { readonly row_key: string; readonly line: string }
type Sums = { readonly rows: number; readonly sum: string }
type There = Sums & { readonly version: number; readonly timeline: number; readonly total: number | null }

export class Checksums {
  readonly #position
  readonly #tables

  constructor(db: DirectoryDb) {
    this.#position = prepareRaw<Position>(
      db,
      `SELECT version, timeline, NOT EXISTS (SELECT 1 FROM outbox) AND NOT EXISTS (SELECT 1 FROM copy_progress) AS isQuiet
       FROM replica`,
    )
    this.#tables = CHECKED.map(table => ({
      table,
      page: prepareRaw<Row>(db, selectLines(table)),
      count: prepareRaw<{ total: number }>(db, `SELECT count(*) AS total FROM ${table.name}`),
      there: sumsThere(table),
    }))
  }

  /**
   * Returns the names of tables that differ. Skips a table whose pages changed at each attempt. A failure ends the
   * comparison, and is thrown if no table differed before: fault `fleet.unavailable`.
   */
  async differing(deps: ChecksumDeps): Promise<string[]> {
    const names: string[] = []
    for (const each of this.#tables) {
      const { name } = each.table
      try {
        const isSame = await this.#isSame(each, deps)
        if (isSame === false) names.push(name)
        if (isSame === null && !deps.signal.aborted)
          deps.log.warn('a table of the copy changed at each attempt to compare it', { table: name })
      } catch (error) {
        if (sqlStateOf(error) === olderSchema) continue
        if (names.length === 0) throw error
        break
      }
    }
    return names
  }

  /** Null if that could not be compared. */
  async #isSame(each: CheckedTable, deps: ChecksumDeps): Promise<boolean | null> {
    let after: readonly string[] = each.table.key.map(() => '')
    let attempts = 0
    while (!deps.signal.aborted && attempts < attemptsMax) {
      const page = await this.#comparePage(each, after, deps)
      if (page === null) {
        attempts += 1
        await deps.clock.sleep(attemptEveryMs, deps.signal)
        await deps.catchUp()
      } else if (!page.isSame || page.last === null) return page.isSame
      else {
        after = page.last
        attempts = 0
        await deps.clock.sleep(0)
      }
    }
    return null
  }

  /** `last`: the key of the last row; null if no page follows. Null if a side has changed. */
  async #comparePage(each: CheckedTable, after: readonly string[], { postgres }: ChecksumDeps) {
    const { table, page, count, there: text } = each
    const at = this.#position.get()
    if (at === null || at.isQuiet === 0) return null
    const limit = rowsPerPage(table)
    const rows = page.all(...after, limit)
    const isLast = rows.length < limit
    const total = isLast ? (count.get()?.total ?? 0) : null
    const keys = `[${rows.map(({ row_key: key }) => key).join(',')}]`
    const [there] = await postgres.query<There>(text, [keys, isLast])
    if (there === undefined || there.version !== at.version || there.timeline !== at.timeline) return null
    const isSame = there.rows === rows.length && there.sum === sumOf(rows) && there.total === total
    const last = isLast ? undefined : rows.at(-1)
    return { isSame, last: last === undefined ? null : table.key.map(name => last[name] ?? '') }
  }
}

type CheckedTable = {
  readonly table: ReplicaTable
  readonly page: { readonly all: (...values: (string | number)[]) => Row[] }
  readonly count: { readonly get: () => { readonly total: number } | null }
  readonly there: string
}

/** The first 48 bits of each line's MD5, added up. Finds errors, not an attack. */
function sumOf(rows: readonly Row[]): string {
  let sum = 0n
  for (const { line } of rows) {
    sum += BigInt(`0x${new Bun.CryptoHasher('md5').update(line).digest('hex').slice(0, 12)}`)
  }
  return String(sum)
}

/** Numbers beyond what is exact here are all one: JSON rounds them on their way. */
const leastInexact = Number.MAX_SAFE_INTEGER + 1

/** Columns of a line, without samples, and without documents, which have up to half a MiB each. */
function linesOf({ columns }: ReplicaTable) {
  return columns.filter(({ name, isSampled }) => isSampled !== true && name !== 'document')
}

/** In the order of keys, after the one in ?1 to ?n. The last value is the limit. */
function selectLines(table: ReplicaTable): string {
  const { name, key } = table
  const texts = linesOf(table).map(({ name: column, type }) => {
    const text = {
      text: column,
      integer: `CAST(max(-${leastInexact}, min(${leastInexact}, ${column})) AS TEXT)`,
      bytes: `lower(hex(${column}))`,
    }
    return `iif(${column} IS NULL, '\\N', ${text[type]})`
  })
  return `SELECT ${keyJson(table)} AS row_key, ${texts.join(" || '|' || ")} AS line, ${key} FROM ${name}
    WHERE (${key}) > (${key.map((_, index) => `?${index + 1}`)}) ORDER BY ${key} LIMIT ?${key.length + 1}`
}

/** $1: keys of the rows, as JSON; $2: whether the rows of the table are counted, too. */
function sumsThere(table: ReplicaTable): string {
  const { name, key } = table
  const texts = linesOf(table).map(({ name: unqualified, type }) => {
    const column = `${name}.${unqualified}`
    const text = {
      text: column,
      // GREATEST and LEAST ignore NULL.
      integer: `CASE WHEN ${column} IS NOT NULL THEN greatest(-${leastInexact}, least(${leastInexact}, ${column})) END::text`,
      bytes: `encode(${column}, 'hex')`,
    }
    return `coalesce(${text[type]}, '\\N')`
  })
  const hash = `('x' || left(md5(convert_to(${texts.join(" || '|' || ")}, 'UTF8')), 12))::bit(48)::bigint`
  return `SELECT (SELECT version FROM fleet) AS version, timeline() AS timeline, count(${name}.*) AS rows,
      coalesce(sum(${hash}), 0)::text AS sum, CASE WHEN $2::boolean THEN (SELECT count(*) FROM ${name}) END AS total
    FROM jsonb_populate_recordset(NULL::${name}, $1::jsonb) AS given
    JOIN ${name} ON ${key.map(column => `${name}.${column} = given.${column}`).join(' AND ')}`
}
