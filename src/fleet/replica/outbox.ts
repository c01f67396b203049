// This host's reports to the directory: batches of rows, numbered without gaps, so that each is applied once whatever
// was interrupted. Effects: SQL on the host's database.

import { type LocalDirectory, prepareRaw } from '../../store/db.ts'
import type { Replica } from './replica.ts'
import { type RowChange, SAMPLE_TABLES } from './tables.ts'

export type Batch = {
  readonly number: number
  readonly throughSeq: number
  readonly changes: readonly RowChange[]
}

/** No share: the next report has the remaining rows. */
const batchRowsMax = 500
/**
 * Rows of sums that move to the outbox in one turn of the event loop. No share: the next turn has the remaining rows.
 */
const releasedRowsMax = 2_000

/** Samples have lines in the same table, and are reported by `SampleLines`. */
const IS_SUM = `table_name NOT IN (${SAMPLE_TABLES.map(table => `'${table}'`).join(', ')})`

type State = { readonly batch: number; readonly sending_seq: number | null }

export class Outbox {
  readonly #directory: LocalDirectory
  readonly #replica: Pick<Replica, 'changesBetween' | 'generation'>
  readonly #sql
  #acknowledged: number
  #isLacking = false

  constructor(directory: LocalDirectory, replica: Pick<Replica, 'changesBetween' | 'generation'>) {
    this.#directory = directory
    this.#replica = replica
    this.#acknowledged = replica.generation.batchBefore()
    const { db } = directory
    this.#sql = {
      state: prepareRaw<State>(db, 'SELECT batch, sending_seq FROM replica'),
      isEmpty: prepareRaw<{ none: number }>(db, 'SELECT NOT EXISTS (SELECT 1 FROM outbox) AS none'),
      send: prepareRaw(db, 'UPDATE replica SET batch = ?1, sending_seq = ?2'),
      sent: prepareRaw(db, 'UPDATE replica SET sending_seq = NULL'),
      strike: prepareRaw(db, 'DELETE FROM outbox WHERE seq <= ?1'),
      renumber: prepareRaw(db, 'UPDATE replica SET batch = ?1, sending_seq = NULL'),
      count: prepareRaw<{ count: number }>(
        db,
        `SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_held WHERE ${IS_SUM}) AS count`,
      ),
      heldThrough: prepareRaw<{ last: number | null }>(
        db,
        `SELECT max(rowid) AS last FROM outbox_held WHERE ${IS_SUM}`,
      ),
      note: prepareRaw(
        db,
        `INSERT OR IGNORE INTO outbox (table_name, row_key) SELECT table_name, row_key FROM outbox_held
         WHERE rowid <= ?1 AND ${IS_SUM} ORDER BY rowid LIMIT ?2`,
      ),
      release: prepareRaw(
        db,
        `DELETE FROM outbox_held WHERE rowid IN (
           SELECT rowid FROM outbox_held WHERE rowid <= ?1 AND ${IS_SUM} ORDER BY rowid LIMIT ?2)`,
      ),
    }
  }

  /** Returns the newest batch that the directory has accepted; 0 before the first. */
  acknowledged(): number {
    return this.#acknowledged
  }

  /** Notes the directory's newest batch, 0 without one, when it had accepted `acknowledged`. */
  directoryHas(batch: number, acknowledged = this.#acknowledged): void {
    if (batch < acknowledged) this.#isLacking = true
  }

  /** Reports whether the directory lacks an accepted batch, because an older state of it was restored. */
  isLacking(): boolean {
    return this.#isLacking
  }

  /** Forgets what was accepted, because everything will be reported again. */
  forgetAcknowledged(): void {
    this.#acknowledged = 0
    this.#isLacking = false
  }

  /** Counts the rows that the directory has not accepted, without samples. */
  count(): number {
    return this.#sql.count.get()?.count ?? 0
  }

  /**
   * Returns the batch in flight, otherwise the next one; null if there is nothing to report. Its number and end are
   * stored before it is sent: a row that changes in the meantime gets a later entry, and goes into a later batch.
   */
  next(): Batch | null {
    if (this.#sql.isEmpty.get()?.none === 1) return null
    const state = this.#sql.state.get()
    if (state === null) return null
    const { batch, sending_seq: sendingSeq } = state
    if (sendingSeq !== null)
      return { number: batch, ...this.#replica.changesBetween(0, sendingSeq), throughSeq: sendingSeq }
    const next = { number: batch + 1, ...this.#replica.changesBetween(0, Number.MAX_SAFE_INTEGER, batchRowsMax) }
    this.#sql.send.run(next.number, next.throughSeq)
    return next
  }

  /** Returns the newest entry of a changed sum; null if there is none. */
  held(): number | null {
    return this.#sql.heldThrough.get()?.last ?? null
  }

  /**
   * Moves entries of sums, up to `through`, into the next batches. Returns false if there were none. Call it again
   * after reporting those batches.
   */
  release(through: number): boolean {
    return this.#directory.transact(() => {
      this.#sql.note.run(through, releasedRowsMax)
      return this.#sql.release.run(through, releasedRowsMax).changes > 0
    })
  }

  /** Removes a batch that the directory has accepted. */
  taken({ number, throughSeq }: Pick<Batch, 'number' | 'throughSeq'>): void {
    this.#acknowledged = number
    this.#directory.transact(() => {
      this.#sql.strike.run(throughSeq)
      this.#sql.sent.run()
    })
  }

  /**
   * Renumbers after the directory's later batch, because these records come from a backup. Everything is reported
   * again.
   */
  renumber(taken: number): void {
    this.#sql.renumber.run(taken)
  }
}
