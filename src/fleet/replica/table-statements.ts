// The statements for rows of one table that hosts copy, prepared once. Effects: SQL on the host's database.

import type { SQLQueryBindings } from 'bun:sqlite'
import { type DirectoryDb, prepareRaw } from '../../store/db.ts'
import { deleteRow, selectRow, updateLogRow, upsertRow } from './statements.ts'
import type { ReplicaTable, WireRow } from './tables.ts'

export type TableStatements = {
  readonly select: (key: WireRow) => WireRow | null
  readonly upsert: (row: WireRow) => void
  /** Applies a row as part of a full copy. */
  readonly upsertPart: (row: WireRow) => void
  readonly remove: (key: WireRow) => void
}

export function prepareTable(db: DirectoryDb, table: ReplicaTable, hostId: string): TableStatements {
  const select = prepareRaw<{ row: string }>(db, selectRow(table))
  const upsert = prepareRaw(db, upsertRow(table, false))
  const upsertPart = prepareRaw(db, upsertRow(table, true))
  const updateLog = table.isLog === true ? prepareRaw(db, updateLogRow(table)) : null
  const remove = prepareRaw(db, deleteRow(table))
  const values = (row: WireRow) => [...table.columns.map(({ name, type }) => bound(row[name], type)), hostId]
  const keyValues = (key: WireRow) => table.key.map(name => bound(key[name], 'text'))
  return {
    select: key => {
      const found = select.get(...keyValues(key))
      return found === null ? null : JSON.parse(found.row)
    },
    upsert: row => {
      updateLog?.run(...values(row))
      upsert.run(...values(row))
    },
    upsertPart: row => {
      updateLog?.run(...values(row))
      upsertPart.run(...values(row))
    },
    remove: key => {
      remove.run(...keyValues(key), hostId)
    },
  }
}

/** Converts a value. One that the directory lacks is null, because an older directory lacks columns. */
function bound(value: string | number | null | undefined, type: 'text' | 'integer' | 'bytes'): SQLQueryBindings {
  if (value === null || value === undefined) return null
  return type === 'bytes' ? Buffer.from(String(value).slice(2), 'hex') : value
}
