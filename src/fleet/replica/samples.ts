// Samples of this host that the directory lacks: a line for each instance or key whose samples have changed since their
// last report; and samples of all hosts. Effects: SQL on the host's database.

import { type DirectoryDb, type LocalDirectory, prepareRaw } from '../../store/db.ts'
import { SAMPLE_TABLES, type SampleTable } from './tables.ts'

/** Samples as the directory has them. `hostId` and `bytes`: of an instance alone. */
export type Sample = {
  readonly key: string
  readonly hostId: string
  readonly bytes: number
  readonly atMs: number
}

/** Lines of a table with the values to report, as JSON; null if there is nothing to report. */
type SampleLine = { readonly line: number; readonly sample: string | null }
export type SampleLineBatch = Readonly<Record<SampleTable, readonly SampleLine[]>>

/** No share: the next batch has the remaining lines. */
const batchLinesMax = 500

export class SampleLines {
  readonly #directory: LocalDirectory
  readonly #hostId: string
  readonly #tables
  /** The last line of each table in the batches so far. */
  #through = byTable(() => 0)

  constructor(directory: LocalDirectory, hostId: string) {
    this.#directory = directory
    this.#hostId = hostId
    const { db } = directory
    this.#tables = {
      after: byTable(table => prepareRaw<SampleLine>(db, selectLines(table, 'h.rowid > ?1'))),
      one: byTable(table => prepareRaw<SampleLine>(db, selectLines(table, 'h.rowid = ?1'))),
      strike: prepareRaw(db, 'DELETE FROM outbox_held WHERE rowid = ?1'),
    }
  }

  /** Returns the first lines, or those after the last batch; null if there are none. */
  next({ isFirst }: { readonly isFirst: boolean }): SampleLineBatch | null {
    const through = isFirst ? byTable(() => 0) : this.#through
    const batch = byTable(table => this.#tables.after[table].all(through[table], this.#hostId, batchLinesMax))
    this.#through = byTable(table => batch[table].at(-1)?.line ?? through[table])
    return SAMPLE_TABLES.some(table => batch[table].length > 0) ? batch : null
  }

  /** Removes lines that the directory has accepted, except those with a newer sample. */
  taken(batch: SampleLineBatch): void {
    this.#directory.transact(() => {
      for (const table of SAMPLE_TABLES) {
        for (const { line, sample } of batch[table]) {
          if (this.#tables.one[table].get(line, this.#hostId, 1)?.sample === sample) this.#tables.strike.run(line)
        }
      }
    })
  }
}

/** `noteEgress`: all samples of instances (?1: their ids, as JSON) are reported again. */
export function sampleStatements(db: DirectoryDb) {
  const takeUse = (table: string) =>
    `UPDATE ${table} SET last_used_at_ms = ?4
     WHERE prefix = ?1 AND coalesce(last_used_at_ms, 0) < ?4 AND ?2 || ?3 || ?5 IS NOT NULL`
  return {
    noteEgress: prepareRaw(
      db,
      `INSERT OR IGNORE INTO outbox_held (table_name, row_key)
       SELECT 'instance_egress', json_object('id', value) FROM json_each(?1)`,
    ),
    takeSample: {
      instance_egress: prepareRaw(
        db,
        `UPDATE instances SET egress_bytes = ?3, egress_observed_at_ms = ?4 WHERE id = ?1 AND host_id = ?2 AND (
           egress_bytes < ?3 OR (egress_bytes = ?3 AND egress_observed_at_ms IS NOT ?4 AND host_id IS NOT ?5))`,
      ),
      key_uses: prepareRaw(db, takeUse('keys')),
      gateway_key_uses: prepareRaw(db, takeUse('gateway_keys')),
    },
  }
}

function byTable<Value>(of: (table: SampleTable) => Value): Record<SampleTable, Value> {
  return { instance_egress: of('instance_egress'), key_uses: of('key_uses'), gateway_key_uses: of('gateway_key_uses') }
}

const SOURCES = {
  instance_egress: {
    from: 'instances',
    key: 'id',
    // A row of another host has its own samples.
    isMine: 's.host_id = ?2 AND s.egress_observed_at_ms IS NOT NULL',
    values: "'id', s.id, 'bytes', s.egress_bytes, 'at_ms', s.egress_observed_at_ms",
  },
  key_uses: keySource('keys'),
  gateway_key_uses: keySource('gateway_keys'),
} as const satisfies Record<SampleTable, object>

function keySource(from: string) {
  const isMine = '?2 IS NOT NULL AND s.last_used_at_ms IS NOT NULL'
  return { from, key: 'prefix', isMine, values: "'prefix', s.prefix, 'at_ms', s.last_used_at_ms" }
}

function selectLines(table: SampleTable, where: string): string {
  const { from, key, isMine, values } = SOURCES[table]
  return `SELECT h.rowid AS line, iif(s.${key} IS NULL, NULL, json_object(${values})) AS sample
    FROM outbox_held h LEFT JOIN ${from} s ON s.${key} = h.row_key ->> '${key}' AND ${isMine}
    WHERE h.table_name = '${table}' AND ${where} ORDER BY h.rowid LIMIT ?3`
}
