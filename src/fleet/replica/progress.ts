// How far a copy of everything has come, kept with its rows: it goes on after an interruption. Effects: SQL on the
// host's database.

import { type DirectoryDb, prepareRaw } from '../../store/db.ts'
import type { WireRow } from './tables.ts'

export type Progress = {
  readonly timeline: number
  /** Changes of the directory after it follow the rows. */
  readonly fromVersion: number
  /** With the changes up to it the copy is whole; null while rows are still read. */
  readonly toVersion: number | null
  /** There was no whole copy before. */
  readonly isFirst: boolean
  /** Nor any rows. */
  readonly isClean: boolean
  /** Rows of earlier tables are there, and those of this one up to a key. */
  readonly table: string
  readonly after: WireRow | null
  readonly rowCount: number
}

type ProgressRow = {
  readonly timeline: number
  readonly from_version: number
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
      write: prepareRaw(db, 'INSERT OR REPLACE INTO copy_progress VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)'),
      end: prepareRaw(db, 'DELETE FROM copy_progress'),
    }
  }

  /** Null if no copy is under way. */
  read(): Progress | null {
    const row = this.#sql.read.get()
    if (row === null) return null
    return {
      timeline: row.timeline,
      fromVersion: row.from_version,
      toVersion: row.to_version,
      isFirst: row.is_first === 1,
      isClean: row.is_clean === 1,
      table: row.table_name,
      after: row.after_key === null ? null : JSON.parse(row.after_key),
      rowCount: row.row_count,
    }
  }

  write(progress: Progress): void {
    const { timeline, fromVersion, toVersion, isFirst, isClean, table, after, rowCount } = progress
    const key = after === null ? null : JSON.stringify(after)
    this.#sql.write.run(timeline, fromVersion, toVersion, isFirst ? 1 : 0, isClean ? 1 : 0, table, key, rowCount)
  }

  end(): void {
    this.#sql.end.run()
  }
}
