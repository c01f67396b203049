// Usage rows of a gateway VM until the host acknowledges them, in batches that are chained and signed. State in memory.
//
// A batch stays unchanged until it is recorded, so that a repeated batch has the same digest. No row is dropped: a
// full spool admits no further requests.

import { toBase64Url, toHex } from '../../base/bytes.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { usageRowsMax } from '../../contract/vm/enclave.ts'
import type { UsageBatch, UsageRow } from '../../contract/vm/enclave-responses.ts'
import { usageBytes, usageMessage, usageTextBytesMax } from '../../contract/vm/usage-batch.ts'
import { cannotRecord } from './faults.ts'
import { usageRowOf } from './row.ts'
import type { MeteringCounts, UsageRecord } from './types.ts'

export type UsageSpoolDeps = {
  /** Maximum number of waiting rows. */
  readonly rowsMax: number
  /** Signs with the receipt key (Ed25519). */
  readonly sign: (message: Uint8Array) => Uint8Array
  /** Called for each row that waits to be reported. */
  readonly onRow: (row: UsageRow) => void
  readonly clock: Pick<Clock, 'sleep'>
}

/** A row whose booking is awaited. */
type BookingWaiter = { readonly number: number; readonly resolve: () => void }

/** How long the end of a response waits for the host's ledger. */
const bookedWaitMs = 250

export class UsageSpool {
  readonly #deps: UsageSpoolDeps
  /** Rows that are not recorded yet; the first has the number `#booked`. */
  readonly #rows: UsageRow[] = []
  #booked = 0
  /** Waiters in the order of their numbers. */
  readonly #awaited: BookingWaiter[] = []
  /** Whether the host has missed the deadline. If so, no request waits for it until it records rows again. */
  #isHostLate = false
  #digest = new Uint8Array(32)
  #batch: { readonly batch: UsageBatch; readonly digest: Uint8Array<ArrayBuffer> } | null = null

  constructor(deps: UsageSpoolDeps) {
    this.#deps = deps
  }

  /**
   * Never refuses, because admission keeps room for running requests. Resolves once the row is in the host's ledger,
   * safe from a crash of this VM, or once the host is late.
   */
  async record(record: UsageRecord): Promise<void> {
    const number = this.#booked + this.#rows.length
    const row = usageRowOf(record)
    this.#rows.push(row)
    this.#deps.onRow(row)
    if (!this.#isHostLate) await this.#bookedInTime(number)
  }

  /**
   * Throws Fault metering_unavailable if more than `rowsMax` rows would wait with one more request besides the running
   * ones.
   */
  checkRoom(running: number): void {
    if (this.#rows.length + running < this.#deps.rowsMax) return
    throw cannotRecord()
  }

  /** Number of rows that the host has recorded. */
  get booked(): number {
    return this.#booked
  }

  /** Returns the rows from number `booked` on. */
  unbooked(): UsageRow[] {
    return [...this.#rows]
  }

  waiting(): number {
    return this.#rows.length
  }

  /** Returns counts in the form of a gateway on the host: written rows are those that the host has recorded. */
  counts(): MeteringCounts {
    return { written: this.#booked, lost: 0, waiting: this.#rows.length }
  }

  /**
   * Applies the host's count of recorded rows. Returns false if it is neither the old count nor the end of the batch.
   */
  book(count: number): boolean {
    if (count === this.#booked) return true
    if (this.#batch === null || count !== this.#booked + this.#batch.batch.rows.length) return false
    this.#rows.splice(0, this.#batch.batch.rows.length)
    this.#booked = count
    this.#digest = this.#batch.digest
    this.#batch = null
    this.#isHostLate = false
    while (this.#awaited[0] !== undefined && this.#awaited[0].number < count) this.#awaited.shift()?.resolve()
    return true
  }

  /** Returns the next batch to be recorded; null if all rows are. */
  next(): UsageBatch | null {
    if (this.#batch === null && this.#rows.length > 0) this.#batch = this.#cut(firstOf(this.#rows))
    return this.#batch?.batch ?? null
  }

  async #bookedInTime(number: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#awaited.push({ number, resolve })
    const ended = new AbortController()
    const late = pause(this.#deps.clock, bookedWaitMs, ended.signal).then(() => {
      if (!ended.signal.aborted) this.#isHostLate = true
    })
    await Promise.race([promise, late])
    ended.abort()
  }

  #cut(rows: UsageRow[]): { batch: UsageBatch; digest: Uint8Array<ArrayBuffer> } {
    const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', usageBytes(this.#digest, rows)))
    const signature = toBase64Url(this.#deps.sign(usageMessage(digest)))
    const batch = { from: this.#booked, rows, before: toHex(this.#digest), digest: toHex(digest), signature }
    return { batch, digest }
  }
}

/** Returns the rows of one batch: as many as it may contain. */
function firstOf(rows: readonly UsageRow[]): UsageRow[] {
  let bytes = 0
  const end = rows.slice(0, usageRowsMax).findIndex(row => {
    bytes += Buffer.byteLength(JSON.stringify(row)) + 1
    return bytes > usageTextBytesMax
  })
  return rows.slice(0, end === -1 ? usageRowsMax : Math.max(end, 1))
}
