// The statements that write rows into the directory, within a numbered transaction. Pure.

import type { Literal } from '../postgres.ts'
import { REPLICA_TABLES, type RowChange } from '../replica/tables.ts'
import { deleteRows, type Writing, writeRows } from './statements.ts'

/**
 * Returns the statements in the order in which they must run: organizations first, because they determine what may be
 * deleted; then deletions, referring rows before the rows they refer to; then writes, in the opposite order. `hostId`:
 * the reporting host.
 */
export function writesOf(
  changes: readonly RowChange[],
  { writing, hostId }: { readonly writing: Writing; readonly hostId: string },
): readonly Literal[] {
  const byTable = Map.groupBy(changes, change => change.table)
  const statement = (text = '', rows: readonly object[]): Literal[] =>
    rows.length === 0 ? [] : [{ text, values: [JSON.stringify(rows), ...(text.includes('$2') ? [hostId] : [])] }]
  const deletions = REPLICA_TABLES.toReversed().flatMap(table =>
    writing === 'report' && !table.hostMay.includes('delete')
      ? []
      : statement(deletionTexts[writing].get(table), keysGone(byTable.get(table.name))),
  )
  const [organizations = [], ...writes] = REPLICA_TABLES.map(table => {
    const rows = (byTable.get(table.name) ?? []).flatMap(({ row }) => (row === null ? [] : [row]))
    return statement(writingTexts[writing].get(table), rows)
  })
  return [...organizations, ...deletions, ...writes.flat()]
}

function keysGone(changes: readonly RowChange[] = []): RowChange['key'][] {
  return changes.flatMap(({ key, row }) => (row === null ? [key] : []))
}

/** Built once, because they are long. */
const deletionTexts = {
  wish: new Map(REPLICA_TABLES.map(table => [table, deleteRows(table, 'wish')])),
  report: new Map(REPLICA_TABLES.map(table => [table, deleteRows(table, 'report')])),
  seed: new Map(REPLICA_TABLES.map(table => [table, deleteRows(table, 'seed')])),
}
const writingTexts = {
  wish: new Map(REPLICA_TABLES.map(table => [table, writeRows(table, 'wish')])),
  report: new Map(REPLICA_TABLES.map(table => [table, writeRows(table, 'report')])),
  seed: new Map(REPLICA_TABLES.map(table => [table, writeRows(table, 'seed')])),
}
