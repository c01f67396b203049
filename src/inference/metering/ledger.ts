// The usage ledger on the request path: records enter a short queue and move from there into the store, many per
// transaction. Effects: the store, and the journal if there is one. With a journal, a kill loses no record; without
// one, those of the last `flushIntervalMs`. A power cut loses those in either case. An orderly stop loses none.
//
// A thread, if there is one, writes the batches, because a commit waits for the disk. A row in a batch of hundreds
// costs a fifth of a row in a batch of twenty. So rows in a journal are written once a second, and others every
// `flushIntervalMs`. Rows stay in the queue until the thread has replied. `flush` writes them on this thread, without
// waiting: a row is written once by its id, whichever thread is first.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { isMonth } from '../../store/directory/usage/periods.ts'
import {
  prepareUsageAppend,
  prepareUsageLookup,
  sumUsage,
  type UsageSum,
} from '../../store/directory/usage/usage.query.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import {
  type DayScope,
  type DaySum,
  prepareDaysPage,
  type ReadDaysPage,
} from '../../store/directory/usage/usage-day.query.ts'
import { prepareHostCosts, prepareOwnMonthSum } from '../../store/directory/usage/usage-hosts.query.ts'
import { prepareMonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { type Append, type Outcome, writeBatch } from './batch.ts'
import { DayReadings, withUnbooked } from './day-sums.ts'
import { cannotRecord } from './faults.ts'
import type { JournalRange, UsageJournal } from './journal/journal.ts'
import { MonthSums } from './journal/month-sum-table.ts'
import type { LedgerWriter } from './ledger-writer.ts'
import { addSums, scopesOf } from './month-sums.ts'
import { type Cost, microUsd } from './price.ts'
import type { HostBudgetShares, MeteringCounts, MonthSpent, Spender, SpentSource, UsageRecord } from './types.ts'

export type MeteringDeps = {
  readonly store: Pick<DirectoryStore, 'db' | 'transact'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly cost: Cost
  /** The thread that writes. Default: this one. */
  readonly writer?: LedgerWriter
  /** Keeps rows until the store has them. Default: rows wait only in memory. */
  readonly journal?: UsageJournal
}

/** [startMs, endMs). */
type Period = { readonly startMs: number; readonly endMs: number }

export const flushIntervalMs = 100
/** Pause after a failed write. */
export const retryIntervalMs = 5_000
/** No share: writes of this process. */
const batchRowsMax = 250
/** The thread reads them from the journal, so they cost this thread nothing. No share: writes of this process. */
const importRowsMax = 2_000
/** Number of journal rows that are written at the next flush. Fewer wait for `importFlushes`. */
export const importRowsMin = 500
/** Number of flushes in a second. */
export const importFlushes = 10
const batchGapMs = 5
/** No share: fills only while the disk accepts no row; half full, every request is refused. */
const waitingMax = 20_000
const daysPageRows = 500
const daysPageGapMs = 1

export class Metering implements SpentSource {
  readonly #deps: MeteringDeps
  readonly #append: Append
  readonly #isInStore: (id: string) => boolean
  readonly #stopping = new AbortController()
  readonly #waiting: Usage[] = []
  /** Positions in the journal of the rows in `#waiting`; -1 for a row that is not in it. */
  readonly #places: number[] = []
  /** Sums of the waiting rows, kept from the first query on; without budgets there are no queries. */
  #waitingSums: MonthSums | null = null
  readonly #monthSum: ReturnType<typeof prepareMonthSum>
  readonly #daysPage: ReadDaysPage
  readonly #ownMonthSum: ReturnType<typeof prepareOwnMonthSum>
  readonly #hostCosts: ReturnType<typeof prepareHostCosts>
  readonly #dayReadings = new DayReadings()
  /** The first waiting batch. */
  #inFlight: InFlight | null = null
  #isFlushScheduled = false
  /** Flushes since rows were last written. */
  #flushesSkipped = 0
  /** Set by the composition of a fleet, before the first request. */
  shares: HostBudgetShares | null = null
  #written = 0
  #lost = 0

  constructor(deps: MeteringDeps) {
    this.#deps = deps
    this.#append = prepareUsageAppend(deps.store.db)
    this.#isInStore = prepareUsageLookup(deps.store.db)
    this.#monthSum = prepareMonthSum(deps.store.db)
    this.#daysPage = prepareDaysPage(deps.store.db)
    this.#ownMonthSum = prepareOwnMonthSum(deps.store.db)
    this.#hostCosts = prepareHostCosts(deps.store.db)
    for (const { row, place } of deps.journal?.takeFound() ?? []) {
      this.#waiting.push(row)
      this.#places.push(place)
    }
    if (this.#waiting.length === 0) return
    deps.log.info('usage records of an earlier daemon are written now', { records: this.#waiting.length })
    this.#scheduleFlush(flushIntervalMs)
  }

  /** Queues a record; after `stop` writes it immediately. Never throws: logs and counts a record that is lost. */
  record(record: UsageRecord): void {
    try {
      const row = rowOf(record, this.#deps.cost)
      if (this.#waiting.length >= waitingMax) throw new Error(`${waitingMax} records wait already`)
      const place = this.#deps.journal?.append(row) ?? -1
      this.#waiting.push(row)
      this.#places.push(place)
      this.#waitingSums?.add(row)
      if (this.#stopping.signal.aborted) this.flush()
      else this.#scheduleFlush(flushIntervalMs)
    } catch (error) {
      this.#noteLost([record.id], error)
    }
  }

  /**
   * Throws Fault metering_unavailable if so many rows wait that rows of running requests may not fit. Called before a
   * request begins.
   */
  checkRoom(): void {
    if (this.#waiting.length >= waitingMax / 2 || this.#deps.journal?.isHalfFull() === true) throw cannotRecord()
  }

  /** Writes the queue now. Never throws; rows that could not be written stay queued. */
  flush(): void {
    // Writes rows that the thread has received again, which changes nothing.
    while (this.#waiting.length > 0 && this.#writeHere());
  }

  /** Writes records immediately; logs and counts lost ones. Throws if the store is not writable now. */
  book(records: readonly UsageRecord[]): void {
    const rows = records.map(record => rowOf(record, this.#deps.cost))
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, rows)
    this.#note(outcome)
    if (!outcome.isWritten) throw new Error(outcome.error ?? 'usage could not be written')
  }

  /** Returns the exact usage on this host only, because the queue is written first. */
  usage(organizationId: string, { startMs, endMs }: Period): UsageSum {
    this.flush()
    return sumUsage(this.#deps.store.db, { organizationId, startMs, endMs })
  }

  /** Changes of the database by connections other than the thread's; null if there is no thread. */
  get changes(): LedgerWriter['changes'] | null {
    return this.#deps.writer?.changes ?? null
  }

  /** Returns the current prices. */
  get cost(): Cost {
    return this.#deps.cost
  }

  /** Returns the sums of the store plus waiting rows, over all hosts as far as others have reported. */
  spent(spender: Spender, month: string): MonthSpent {
    return this.#spent(spender, month, this.#monthSum)
  }

  /** Returns the sums of this host only. */
  ownSpent(spender: Spender, month: string): MonthSpent {
    return this.#spent(spender, month, this.#ownMonthSum)
  }

  #spent(spender: Spender, month: string, monthSum: ReturnType<typeof prepareMonthSum>): MonthSpent {
    const { key, organization } = scopesOf(spender, month)
    const hasShort = !isMonth(month)
    if (this.#waitingSums === null || (hasShort && !this.#waitingSums.hasShort)) {
      this.#waitingSums = new MonthSums(hasShort)
      for (const row of this.#waiting) this.#waitingSums.add(row)
    }
    const waiting = this.#waitingSums
    return this.#consistent(() => ({
      key: addSums(monthSum(key), waiting.of(key)),
      organization: addSums(monthSum(organization), waiting.of(organization)),
    }))
  }

  /** No-op: the host's own sums are always available. */
  async load(): Promise<void> {}

  /** Reads the usage by day. Each page is as of its reading; requests run in between. */
  days(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    return this.#dayReadings.read(scope, async after => {
      await this.#deps.clock.sleep(daysPageGapMs)
      return this.#consistent(() =>
        withUnbooked(this.#daysPage(scope, after, daysPageRows), { scope, after }, this.#waiting),
      )
    })
  }

  /**
   * Returns the sum for service A's usage summary: exact over all hosts, rounded up once to whole micro-dollars.
   * `period`: a billing period of the organization.
   */
  inferenceCostMicroUsd(organizationId: string, period: Period): bigint {
    const rows = this.usage(organizationId, period).costNanoUsd
    // After a restore from an older copy, the fleet returns sums whose rows are lost.
    const { own, others } = this.#hostCosts({ organizationId, ...period })
    const lost = own > rows ? own - rows : 0n
    return microUsd(rows + lost + others)
  }

  counts(): MeteringCounts {
    return { written: this.#written, lost: this.#lost, waiting: this.#waiting.length }
  }

  /**
   * Writes the queue before it returns, or once the thread has written its batch; later records are written one by one.
   * Resolves once the thread has ended.
   */
  async stop(): Promise<void> {
    this.#stopping.abort()
    // While the thread writes a batch, it holds the database's lock.
    if (this.#inFlight === null) this.flush()
    await this.#deps.writer?.close()
    this.flush()
    this.#release()
    this.#deps.journal?.close()
  }

  /** Returns false if the batch could not be written and stays queued. */
  #writeHere(): boolean {
    const batch = this.#waiting.slice(0, batchRowsMax)
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, batch)
    return this.#take(outcome, batch.length)
  }

  async #writeThere(writer: LedgerWriter): Promise<boolean> {
    const { rows, range } = this.#nextBatch()
    const inFlight: InFlight = { rows, isBooked: false }
    this.#inFlight = inFlight
    const outcome = await writer.write(rows, range)
    if (!outcome.isWritten) {
      // A thread may have ended after its commit.
      if (inFlight.isBooked) this.#putBack(inFlight.rows.filter(row => !this.#isInStore(row.id)))
      // Otherwise the store may have failed; this connection is monitored for damage.
      return this.#writeHere()
    }
    if (this.#inFlight === inFlight) this.#take(outcome, inFlight.rows.length)
    else if (inFlight.isBooked) this.#note(outcome)
    // This thread has also written the rows, and has recorded the refused ones.
    else this.#written += outcome.added
    return true
  }

  /** Returns the first rows of the queue. If the first is in the journal, only those with adjacent positions. */
  #nextBatch(): { readonly rows: readonly Usage[]; readonly range: JournalRange | null } {
    const [from = -1] = this.#places
    const others = this.#places.slice(0, importRowsMax + 1).findIndex((place, at, all) => {
      return at > 0 && place <= (all[at - 1] ?? -1)
    })
    const count = from < 0 ? batchRowsMax : others < 0 ? importRowsMax : others
    const rows = this.#waiting.slice(0, count)
    if (from < 0) return { rows, range: null }
    const next = this.#places[rows.length] ?? -1
    return { rows, range: { from, to: next > from ? next : (this.#deps.journal?.end ?? from) } }
  }

  /** Frees the journal's slots of all rows before the first waiting one. Call it while the thread has no batch. */
  #release(): void {
    const { journal } = this.#deps
    // A row that was put back has slots that its position does not name.
    if (!this.#places.includes(-1)) journal?.release(this.#places[0] ?? journal.end)
  }

  #putBack(rows: readonly Usage[]): void {
    this.#waiting.unshift(...rows)
    // The rows have no range that the thread could read.
    this.#places.unshift(...rows.map(() => -1))
    for (const row of rows) this.#waitingSums?.add(row)
  }

  /** Returns false if nothing was written and the batch stays queued. */
  #take(outcome: Outcome, rowCount: number): boolean {
    this.#note(outcome)
    if (outcome.isWritten) {
      this.#drop(rowCount)
      return true
    }
    const fields = { waiting: this.#waiting.length, error: outcome.error }
    this.#deps.log.error('usage records could not be written and stay queued', fields)
    return false
  }

  #drop(rowCount: number): void {
    // The batch in flight is the front of the queue.
    this.#inFlight = null
    this.#places.splice(0, rowCount)
    for (const row of this.#waiting.splice(0, rowCount)) this.#waitingSums?.remove(row)
  }

  /**
   * Reads store and queue together with `read`. If the thread has meanwhile written queued rows, removes them from the
   * queue and reads again.
   */
  #consistent<T>(read: () => T): T {
    const value = read()
    const inFlight = this.#inFlight
    if (inFlight === null || !this.#isBooked(inFlight.rows)) return value
    inFlight.isBooked = true
    this.#drop(inFlight.rows.length)
    return read()
  }

  /**
   * Reports whether the batch is in the store. A batch is written completely or not at all. If its first or last row
   * was refused, waits for the thread's reply.
   */
  #isBooked(rows: readonly Usage[]): boolean {
    const [first, last] = [rows.at(0), rows.at(-1)]
    return first !== undefined && last !== undefined && this.#isInStore(first.id) && this.#isInStore(last.id)
  }

  /** Writes one batch at a time, with a pause for requests in between. */
  #scheduleFlush(ms: number): void {
    if (this.#isFlushScheduled) return
    this.#isFlushScheduled = true
    const { signal } = this.#stopping
    void pause(this.#deps.clock, ms, signal).then(async () => {
      const hasMore = this.#waiting.length > (this.#isJournalSynced() ? importRowsMax : batchRowsMax)
      const isWritten = await this.#flushNext()
      this.#isFlushScheduled = false
      this.#release()
      if (this.#waiting.length === 0 || signal.aborted) return
      const gapMs = hasMore ? batchGapMs : flushIntervalMs
      this.#scheduleFlush(isWritten ? gapMs : retryIntervalMs)
    })
  }

  /** Returns false if the batch could not be written and stays queued. */
  #flushNext(): boolean | Promise<boolean> {
    if (this.#waiting.length === 0) return true
    this.#flushesSkipped += 1
    const mayWait = this.#isJournalSynced() && this.#waiting.length < importRowsMin
    if (mayWait && this.#flushesSkipped < importFlushes) return true
    this.#flushesSkipped = 0
    const writer = this.#liveWriter()
    // Without its thread, the ledger writes here.
    return writer === null ? this.#writeHere() : this.#writeThere(writer)
  }

  #liveWriter(): LedgerWriter | null {
    const { writer = null } = this.#deps
    return writer?.isAlive() === true && !this.#stopping.signal.aborted ? writer : null
  }

  /** Reports whether all waiting rows survive a kill, and a power cut after `flushIntervalMs`. */
  #isJournalSynced(): boolean {
    return this.#deps.journal !== undefined && this.#liveWriter() !== null && !this.#places.includes(-1)
  }

  #note({ added, refused, error }: Outcome): void {
    this.#written += added
    // One line per batch, so that bad rows do not fill the log.
    if (refused.length > 0) this.#noteLost(refused, error)
  }

  #noteLost(ids: readonly string[], error: unknown): void {
    this.#lost += ids.length
    this.#deps.log.error('usage records were lost', { requests: ids, error })
  }
}

/**
 * A batch that the thread has written, or may yet write, while its rows are in the queue. `isBooked`: whether the rows
 * were found in the store and left the queue before the thread replied.
 */
type InFlight = { readonly rows: readonly Usage[]; isBooked: boolean }

/** Builds a row. Amounts never cause a refusal: a value that a column cannot hold is stored as its maximum. */
function rowOf(record: UsageRecord, cost: Cost): Usage {
  const { id, atMs, caller, model, upstream, tokensSource, outcome, labels, tokens: given } = record
  const prompt = amountOf(given.prompt)
  const cached = Math.min(amountOf(given.cached ?? 0), prompt)
  const tokens = { prompt, completion: amountOf(given.completion), cached }
  const costNanoUsd = cost(model, tokens)
  return {
    id,
    atMs,
    organizationId: caller.organizationId,
    keyPrefix: caller.keyPrefix,
    instanceId: caller.instanceId,
    model,
    upstream,
    promptTokens: tokens.prompt,
    completionTokens: tokens.completion,
    cachedTokens: cached,
    costNanoUsd: amountOf(Number(costNanoUsd)),
    outcome,
    tokensSource,
    endUser: labels?.endUser ?? null,
    tags: labels?.tags ?? null,
  }
}

function amountOf(value: number): number {
  return Number.isNaN(value) ? 0 : Math.trunc(Math.min(Math.max(value, 0), Number.MAX_SAFE_INTEGER))
}
