// Generations of this host's sums of usage: one process increments each, so the greater of two values of a sum is the
// newer one. Effects: SQL on the host's database.

import { type LocalDirectory, prepareRaw } from '../../store/db.ts'
import { addSumsTo, deleteOwnSums } from './statements.ts'
import { REPLICA_TABLES } from './tables.ts'

type Former = { readonly batch: number; readonly generation: string }

const random = "'/' || lower(hex(randomblob(8)))"

export class UsageGeneration {
  readonly #directory: LocalDirectory
  readonly #hostId: string
  readonly #sql
  /** The state before this start; null once it is decided whether it continues. */
  #former: Former | null = null
  #batchBefore = 0

  constructor(directory: LocalDirectory, hostId: string) {
    this.#directory = directory
    this.#hostId = hostId
    const { db } = directory
    const sums = REPLICA_TABLES.filter(table => table.isSum === true)
    this.#sql = {
      // A report under way may have sums that a copy made before its next attempt lacks.
      former: prepareRaw<Former>(
        db,
        "SELECT batch, generation FROM replica WHERE generation <> '' AND sending_seq IS NULL",
      ),
      // The directory may not have taken a report that was under way.
      before: prepareRaw<{ batch: number }>(db, 'SELECT batch - (sending_seq IS NOT NULL) AS batch FROM replica'),
      // A random number, because two copies of this database must not give different reports the same number.
      renumber: prepareRaw(db, 'UPDATE replica SET batch = batch + 1 + abs(random() % 4294967296)'),
      renew: prepareRaw(db, `UPDATE replica SET generation = ${random} WHERE generation <> ''`),
      begin: prepareRaw(db, `UPDATE replica SET generation = ${random} WHERE generation = '' AND is_seeding = 0`),
      addSums: sums.map(table => prepareRaw(db, addSumsTo(table))),
      deleteSums: sums.map(table => prepareRaw(db, deleteOwnSums(table))),
      keep: prepareRaw(db, 'UPDATE replica SET batch = ?1, generation = ?2'),
    }
  }

  /**
   * Gives reports a number far from the former ones, and sums a generation if the directory's schema has them, because
   * an older copy of this database may have been restored. Within a transaction.
   */
  renew(): void {
    this.#former = this.#sql.former.get()
    this.#batchBefore = this.#sql.before.get()?.batch ?? 0
    this.#sql.renumber.run()
    this.#sql.renew.run()
  }

  /**
   * Returns the number of the newest report of an earlier process, 0 without one. It may be greater, if a process ended
   * before its first report.
   */
  batchBefore(): number {
    return this.#batchBefore
  }

  /** Sums have a generation from now on, because the directory's schema is new enough. Idempotent. */
  begin(): void {
    this.#sql.begin.run()
  }

  /**
   * Continues the former generation if no older copy can have been restored, so that starts do not add rows: the same
   * state directory reported last, and the directory's newest report is the former process's. Only the first call has
   * an effect, because reports follow it. `reported`: see Renewed.
   */
  keep(reported: number | null): void {
    const former = this.#former
    this.#former = null
    if (former === null || former.batch !== reported) return
    this.#directory.transact(() => {
      for (const statement of this.#sql.addSums) statement.run(this.#hostId + former.generation)
      for (const statement of this.#sql.deleteSums) statement.run()
      this.#sql.keep.run(former.batch, former.generation)
    })
  }
}
