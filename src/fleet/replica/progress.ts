// Progress of a full copy, stored with its rows, so that it resumes after an interruption. Effects: SQL on the host's
// database.

import { type DirectoryDb, prepareRaw } from '../../store/db.ts'
import type { WireRow } from './tables.ts'

export type Progress = {
  readonly timeline: number
  /** The directory's changes after this version are applied after the rows. */
  readonly fromVersion: number
  /** The newest change up to that version, as in `ReplicaMark`. */
  readonly change: string
  /** The copy is complete with the changes up to this version; null while rows are being read. */
  readonly toVersion: number | null
  /** There was no complete copy before. */
  readonly isFirst: boolean
  /** There were no rows either. */
  readonly isClean: boolean
  /** Rows of earlier tables are copied, and those of this table up to a key. */
  readonly table: string
  readonly after: WireRow | null
  readonly rowCount: number
}

type ProgressRow = {
  readonly timeline: number
  readonly from_version: number
  readonly change: string
  readonly to_version: number | null
  readonly is_first: number
  readonly is_clean: number
  readonly table_name: string
  readonly after_key: string | null
  readonly row_count: number
}

export class CopyProgress {
  readonly #sql

  constructor(db: DirectoryDb) {
    this.#sql = {
      read: prepareRaw<ProgressRow>(db, 'SELECT * FROM copy_progress'),
      write: prepareRaw(db, 'INSERT OR REPLACE INTO copy_progress VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)'),
      end: prepareRaw(db, 'DELETE FROM copy_progress'),
    }
  }

  /** Returns the progress; null if no copy is in progress. */
  read(): Progress | null {
    const row = this.#sql.read.get()
    if (row === null) return null
    return {
      timeline: row.timeline,
      fromVersion: row.from_version,
      change: row.change,
      toVersion: row.to_version,
      isFirst: row.is_first === 1,
      isClean: row.is_clean === 1,
      table: row.table_name,
      after: row.after_key === null ? null : JSON.parse(row.after_key),
      rowCount: row.row_count,
    }
  }

  write(progress: Progress): void {
    const { timeline, fromVersion, toVersion, isFirst, isClean, table, after, rowCount, change } = progress
    const key = after === null ? null : JSON.stringify(after)
    const is = [isFirst ? 1 : 0, isClean ? 1 : 0]
    this.#sql.write.run(timeline, fromVersion, toVersion, ...is, table, key, rowCount, change)
  }

  end(): void {
    this.#sql.end.run()
  }
}
