// How far this host has read the sums of usage that hosts have reported. Effects: SQL on the host's database.

import { type DirectoryDb, prepareRaw } from '../../store/db.ts'

export type SumsPosition = {
  /** The server whose transactions have the numbers of `snapshot`. */
  readonly source: string
  /** PostgreSQL's pg_snapshot, without spaces: which transactions the reading has seen. */
  readonly snapshot: string
}

export class SumsMark {
  readonly #sql
  /** The position of a reading that brought nothing, which is not stored. */
  #later: SumsPosition | null = null

  constructor(db: DirectoryDb) {
    this.#sql = {
      read: prepareRaw<{ mark: string }>(db, 'SELECT sums_mark AS mark FROM replica'),
      write: prepareRaw(db, 'UPDATE replica SET sums_mark = ?1'),
    }
  }

  /** Returns the position; null before the first reading, and while sums are among the directory's changes. */
  read(): SumsPosition | null {
    if (this.#later !== null) return this.#later
    const mark = this.#sql.read.get()?.mark ?? ''
    const end = mark.lastIndexOf(' ')
    return end < 0 ? null : { source: mark.slice(0, end), snapshot: mark.slice(end + 1) }
  }

  /** `isEmpty`: nothing was read since the stored position, from which a later process may read again. */
  write(position: SumsPosition | null, { isEmpty = false } = {}): void {
    this.#later = position
    if (!isEmpty) this.#sql.write.run(position === null ? '' : `${position.source} ${position.snapshot}`)
  }
}
