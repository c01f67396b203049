// Rows into the directory, within a numbered transaction. Effects: statements to PostgreSQL.

import type { Sql } from '../postgres.ts'
import { REPLICA_TABLES, type RowChange } from '../replica/tables.ts'
import { deleteRows, type Writing, writeRows } from './statements.ts'

/**
 * Deletions first, those of referring rows before the rows they refer to; then writes, the other way round. `hostId`:
 * the host that reports.
 */
export async function writeChanges(
  sql: Sql,
  changes: readonly RowChange[],
  { writing, hostId }: { readonly writing: Writing; readonly hostId: string },
): Promise<void> {
  const send = async (text: string, rows: readonly object[]) => {
    if (rows.length > 0) await sql.query(text, [JSON.stringify(rows), ...(text.includes('$2') ? [hostId] : [])])
  }
  const byTable = Map.groupBy(changes, change => change.table)
  for (const table of REPLICA_TABLES.toReversed()) {
    if (writing === 'report' && !table.hostMay.includes('delete')) continue
    await send(deletionTexts[writing].get(table) ?? '', keysGone(byTable.get(table.name)))
  }
  for (const table of REPLICA_TABLES) {
    const rows = (byTable.get(table.name) ?? []).flatMap(({ row }) => (row === null ? [] : [row]))
    await send(writingTexts[writing].get(table) ?? '', rows)
  }
}

function keysGone(changes: readonly RowChange[] = []): RowChange['key'][] {
  return changes.flatMap(({ key, row }) => (row === null ? [key] : []))
}

/** Made once: they are long. */
const deletionTexts = {
  wish: new Map(REPLICA_TABLES.map(table => [table, deleteRows(table, 'wish')])),
  report: new Map(REPLICA_TABLES.map(table => [table, deleteRows(table, 'report')])),
}
const writingTexts = {
  wish: new Map(REPLICA_TABLES.map(table => [table, writeRows(table, 'wish')])),
  report: new Map(REPLICA_TABLES.map(table => [table, writeRows(table, 'report')])),
}
