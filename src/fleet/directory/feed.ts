// Changes of the directory since a version, and its rows in pages. Effects: statements to PostgreSQL.

import { assert } from '../../base/assert.ts'
import type { Literal, Row, Sql } from '../postgres.ts'
import { announcementChannel, announcementText } from '../replica/announcement.codec.ts'
import type { ReplicaMark, ReplicaPosition } from '../replica/replica.ts'
import { type ReplicaTable, type RowChange, rowKey, type WireRow } from '../replica/tables.ts'
import { readPage } from './statements.ts'

export type ChangeSet =
  | {
      readonly kind: 'changes'
      readonly changes: readonly RowChange[]
      readonly to: ReplicaPosition
      /** True if no later changes exist yet. */
      readonly isWhole: boolean
    }
  /**
   * A full copy is required: changes were trimmed, or another server took over that may lack some. `isOtherHistory`:
   * the directory does not have the newest change of this copy, as after a restore.
   */
  | { readonly kind: 'snapshot'; readonly isOtherHistory: boolean }

export type ChangesAndHosts = { readonly changeSet: ChangeSet; readonly hosts: readonly HostRow[] }

/** A host, as used for the placement of instances. */
export type HostRow = {
  readonly id: string
  readonly name: string
  readonly platform: string | null
  /** Number of instances that it has and can take in addition. */
  readonly places: number
  readonly isDraining: boolean
  readonly hasLease: boolean
  /** The host was silent for so long that its instances were given up. */
  readonly isLost: boolean
  /** Whether it has an address for other hosts. */
  readonly answersHosts: boolean
  /** The newest schema of the directory that it supports; null if it has not reported it. */
  readonly schema: number | null
  /** Whether the copy of the host lacks a change that is older than `behindMs`. */
  readonly isBehind: boolean
}

/** No share: the next read has the remaining rows. */
const changeCountMax = 2_000
/**
 * Limit on the rows of one transaction, which is read whole; the limits on batches keep it below. No share: the batch
 * that made the version has its own limit.
 */
const changesOfOneVersionMax = 100_000

/** A host reads changes every 2 s, and renews its lease as often. */
const behindMs = 30_000

/** A host writes its report itself, so another type or size than expected must not fail the statement. */
const IS_BEHIND = `coalesce(CASE WHEN jsonb_typeof(report -> 'copied_version') = 'number' THEN
    (SELECT at FROM changes WHERE version > least(greatest(
        (report ->> 'copied_version')::numeric, 0), (SELECT version FROM fleet))::bigint ORDER BY version LIMIT 1)
      < now() - interval '${behindMs} milliseconds' END, false)`

const HOSTS = `(SELECT coalesce(jsonb_agg(jsonb_build_object(
    'id', id, 'name', name, 'platform', platform, 'places', places, 'isDraining', draining_ms IS NOT NULL,
    'hasLease', has_lease, 'isLost', lost_at IS NOT NULL, 'schema', report -> 'schema',
    'isBehind', ${IS_BEHIND},
    'answersHosts', EXISTS (SELECT 1 FROM peers WHERE host_id = host_states.id AND address IS NOT NULL))), '[]')
  FROM host_states)`

/** Returns all hosts, as within a change. */
export async function readHosts(sql: Sql): Promise<readonly HostRow[]> {
  const [row] = await sql.query<{ hosts: readonly HostRow[] }>(`SELECT ${HOSTS} AS hosts`)
  return row?.hosts ?? []
}

const CHANGE = `version || ' ' || (extract(epoch FROM at) * 1000000)::bigint`

/** Returns an expression: the newest change up to a version, as in `ReplicaPosition`. */
export function changeUpTo(version: string): string {
  return `coalesce((SELECT ${CHANGE} FROM changes
    WHERE version <= ${version} ORDER BY version DESC, ordinal DESC LIMIT 1), '')`
}

/**
 * Returns a statement for the newest change within a transaction. A change that writes rows as they are has no row in
 * `changes`, so the number of the transaction alone does not identify it.
 */
export const newestChange: Literal = {
  text: `SELECT ${changeUpTo('(SELECT version FROM fleet)')} AS change`,
  values: [],
}

/** Returns a statement that announces the rows of a transaction at its commit, if begin_change() did not. */
export function announce(version: number, changes: readonly RowChange[]): Literal {
  return { text: 'SELECT pg_notify($1, $2)', values: [announcementChannel, announcementText(version, changes)] }
}

/** All changes up to the copy's version may have been trimmed, its newest with them. */
const IS_SAME = `(${changeUpTo('$1::bigint')} = $3::text OR (${changeUpTo('$1::bigint')} = ''
  AND coalesce(nullif(split_part($3::text, ' ', 1), '')::bigint <= t.version, false)))`

function statement(columns: string): string {
  return `SELECT f.version AS now, f.id::text AS fleet, timeline() AS timeline, t.version AS trimmed,
      ${IS_SAME} AS is_same,
      c.version AS at, c.table_name, c.row_key, c.row, c.change${columns}
    FROM fleet f CROSS JOIN trimmed t LEFT JOIN LATERAL (
      SELECT version, ordinal, table_name, row_key, row, ${CHANGE} AS change FROM changes
      WHERE version > $1::bigint ORDER BY version, ordinal LIMIT $2::bigint
    ) c ON true
    ORDER BY c.version, c.ordinal`
}

const readChanges = statement('')
/** Selects the hosts in the first row only: there may be thousands of rows, and tens of hosts. */
const readChangesAndHosts = statement(
  `, CASE WHEN row_number() OVER (ORDER BY c.version, c.ordinal) = 1 THEN ${HOSTS} END AS hosts`,
)

type ChangeRow = Row & {
  readonly now: number
  readonly fleet: string
  readonly timeline: number
  readonly trimmed: number
  /** Whether the newest change up to the copy's version is the copy's. */
  readonly is_same: boolean
  readonly change: string | null
  readonly at: number | null
  readonly table_name: string
  readonly row_key: WireRow
  readonly row: WireRow | null
  readonly hosts?: readonly HostRow[] | null
}

export async function fleetIdOf(sql: Sql): Promise<string> {
  const [row] = await sql.query<{ id: string }>('SELECT id::text AS id FROM fleet')
  assert(row !== undefined, 'a directory has its id')
  return row.id
}

/**
 * Reads changes with one statement. `markNow`: the state of the copy, which may advance meanwhile. Changes that it has
 * by then are left out: applied again, they would undo what this host has changed since. Fault `fleet.unavailable`.
 */
export async function readChangeSet(sql: Sql, markNow: () => ReplicaMark): Promise<ChangeSet> {
  const mark = markNow()
  const rows = await sql.query<ChangeRow>(readChanges, [mark.version, changeCountMax, mark.change])
  const isOneVersion = rows.length === changeCountMax && rows[0]?.at === rows.at(-1)?.at
  const whole = isOneVersion
    ? await sql.query<ChangeRow>(readChanges, [mark.version, changesOfOneVersionMax, mark.change])
    : rows
  return changeSetOf(whole, mark, { end: null, hereVersion: markNow().version })
}

/** Returns a statement for `changesAndHostsIn`. */
export function changesAndHostsAfter({ version, change }: ReplicaMark): Literal {
  return { text: readChangesAndHosts, values: [String(version), String(changeCountMax), change] }
}

/**
 * Reads the statement's rows within the numbered transaction of `version`: changes up to the preceding version, and the
 * hosts. `mark`: the current state of the copy, whose changes are skipped. If the changes fill a page, returns no
 * changes, marked as not whole.
 */
export function changesAndHostsIn(rows: readonly Row[], mark: ReplicaMark, version: number): ChangesAndHosts {
  const found = rows as readonly ChangeRow[]
  const changeSet: ChangeSet =
    found.length < changeCountMax
      ? changeSetOf(found, mark, { end: version - 1, hereVersion: mark.version })
      : { kind: 'changes', changes: [], to: mark, isWhole: false }
  return { changeSet, hosts: found[0]?.hosts ?? [] }
}

/** `mark`: the state of the copy when the rows were requested. `hereVersion`: its version now. */
function changeSetOf(
  rows: readonly ChangeRow[],
  mark: ReplicaMark,
  { end, hereVersion }: { readonly end: number | null; readonly hereVersion: number },
): ChangeSet {
  const [first] = rows
  assert(first !== undefined, 'a directory has its counter')
  const { timeline, trimmed } = first
  const now = end ?? first.now
  assert(first.fleet === mark.fleetId, 'the directory is of the fleet that this host is in')
  const isOtherHistory = now < mark.version || (mark.version >= trimmed && !first.is_same)
  if (timeline !== mark.timeline || mark.version < trimmed || isOtherHistory)
    return { kind: 'snapshot', isOtherHistory }
  const isWhole = rows.length < changeCountMax
  const last = rows.at(-1)?.at ?? now
  // The last version of a page may be truncated, unless it is the only one, which was read whole.
  const isCut = !isWhole && first.at !== last
  const taken = isCut ? rows.filter(({ at }) => at !== null && at < last) : rows
  // The copy may have advanced since the rows were requested.
  const version = isCut ? last - 1 : isWhole ? now : last
  const changes = taken.flatMap(({ at, table_name: table, row_key: key, row }) =>
    at === null || at <= hereVersion ? [] : [{ table, key, row }],
  )
  const newest = taken.at(-1)
  const isNewer = newest !== undefined && newest.at !== null && newest.at > mark.version
  const change = isNewer ? (newest.change ?? '') : mark.change
  return { kind: 'changes', changes, to: { version, timeline, change }, isWhole }
}

/** The statement's time has a limit. No share: with more rows than this, changes are applied. */
const countedChangesMax = 100_000

/**
 * Reports whether there are more changes than `count` after a version, so that replaying them costs more than a copy of
 * that many rows. False for a count that is too large.
 */
export async function hasMoreChanges(sql: Sql, { version }: ReplicaMark, count: number): Promise<boolean> {
  if (count >= countedChangesMax) return false
  const [found] = await sql.query<{ count: number }>(
    'SELECT count(*) AS count FROM (SELECT 1 FROM changes WHERE version > $1 LIMIT $2) AS later',
    [version, count + 1],
  )
  return (found?.count ?? 0) > count
}

/** Rows that are read together: fewer of those that may be large. Documents of attestations may have half a MiB. */
const pageRowCount = 1_000
const pageRowCounts = new Map([
  ['instance_attestations', 16],
  ['builds', 100],
])

/** Returns how many rows of a table are read together. */
export function rowsPerPage({ name }: ReplicaTable): number {
  return pageRowCounts.get(name) ?? pageRowCount
}

/** Yields the rows of a table in the order of their keys, after a key. Each page reflects its own moment. */
export async function* pagesOf(
  sql: Sql,
  table: ReplicaTable,
  from: WireRow | null = null,
): AsyncGenerator<readonly RowChange[]> {
  const limit = rowsPerPage(table)
  let after = from
  for (;;) {
    const values = after === null ? [] : table.key.map(name => String(after?.[name]))
    const rows: { row: WireRow }[] = await sql.query<{ row: WireRow }>(readPage(table, after === null), [
      ...values,
      limit,
    ])
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map(({ row }) => ({ table: table.name, key: rowKey(table, row), row }))
    if (rows.length < limit) return
    after = rowKey(table, last.row)
  }
}
