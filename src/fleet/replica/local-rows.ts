// Rows of this host's own database that hosts copy, in pages. Effects: SQL on the host's database.

import { assert } from '../../base/assert.ts'
import { type DirectoryDb, prepareRaw } from '../../store/db.ts'
import { countUnnoted, selectPage, selectRow } from './statements.ts'
import { REPLICA_TABLES, type ReplicaTable, type RowChange, rowKey, type WireRow } from './tables.ts'

/** A row, with its key in the form of the outbox. */
export type LocalRow = RowChange & { readonly row: WireRow; readonly text: string }

/** A row's key, and its form in the outbox. */
export type LocalKey = Pick<LocalRow, 'key' | 'text'>

type RowKey = { readonly row_key: string }
type KeyedRow = RowKey & { readonly row: string }

export class LocalRows {
  readonly #tables
  readonly #noted
  readonly #count

  constructor(db: DirectoryDb) {
    this.#tables = new Map(
      REPLICA_TABLES.map(table => [
        table.name,
        {
          first: prepareRaw<KeyedRow>(db, selectPage(table, true)),
          next: prepareRaw<KeyedRow>(db, selectPage(table, false)),
          firstKeys: prepareRaw<RowKey>(db, selectPage(table, true, 'keys')),
          nextKeys: prepareRaw<RowKey>(db, selectPage(table, false, 'keys')),
          unnoted: prepareRaw<{ count: number }>(db, countUnnoted(table)),
          one: prepareRaw<{ row: string }>(db, selectRow(table)),
        },
      ]),
    )
    const counts = REPLICA_TABLES.map(({ name }) => `(SELECT count(*) FROM ${name})`).join(' + ')
    this.#count = prepareRaw<{ count: number }>(db, `SELECT ${counts} AS count`)
    this.#noted = prepareRaw(
      db,
      `SELECT 1 FROM outbox WHERE table_name = ?1 AND row_key = ?2
       UNION ALL SELECT 1 FROM outbox_held WHERE table_name = ?1 AND row_key = ?2`,
    )
  }

  /** Counts the rows of all tables. */
  count(): number {
    return this.#count.get()?.count ?? 0
  }

  /** Returns the next rows after a key, in the order of keys. */
  page({ name, key }: ReplicaTable, after: WireRow | null, limit: number): LocalRow[] {
    const { first, next } = this.#of(name)
    const found = after === null ? first.all(limit) : next.all(...key.map(column => after[column] ?? null), limit)
    return found.map(({ row_key: text, row }) => ({ table: name, key: JSON.parse(text), row: JSON.parse(row), text }))
  }

  /** Returns the next keys after a key, without the rows, in order. */
  keys({ name, key }: ReplicaTable, after: WireRow | null, limit: number): LocalKey[] {
    const { firstKeys, nextKeys } = this.#of(name)
    const values = key.map(column => after?.[column] ?? null)
    const found = after === null ? firstKeys.all(limit) : nextKeys.all(...values, limit)
    return found.map(({ row_key: text }) => ({ key: JSON.parse(text), text }))
  }

  /** Returns the row of a key; null if there is none. */
  row({ name, key: columns }: ReplicaTable, key: WireRow): WireRow | null {
    const found = this.#of(name).one.get(...columns.map(column => key[column] ?? null))
    return found === null ? null : JSON.parse(found.row)
  }

  /** Counts rows without an unreported local change. */
  countUnnoted({ name }: ReplicaTable): number {
    return this.#of(name).unnoted.get()?.count ?? 0
  }

  /** Reports whether a row has a local change that the directory may lack. `text`: its key. */
  isNoted(table: string, text: string): boolean {
    return this.#noted.get(table, text) !== null
  }

  #of(name: string) {
    const found = this.#tables.get(name)
    assert(found !== undefined, `${name} is copied`)
    return found
  }
}

/** Returns the key of a row in the form of the outbox. */
export function outboxKey(table: ReplicaTable, key: WireRow): string {
  return JSON.stringify(rowKey(table, key))
}
