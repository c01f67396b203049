// The usage ledger on the request path: records enter a short queue and go from there into the store, many per
// transaction. Effects: the store. A crash loses the records of at most the last `flushIntervalMs`; a stop loses none.
//
// A thread writes the batches where there is one, because a commit waits for the disk. Rows stay in the queue until the
// thread has replied. `flush` writes them here, too, and waits for nobody: a row is written once by its id, whichever
// comes first.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryStore } from '../../store/db.ts'
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
import { prepareCostOfOthers, prepareOwnMonthSum } from '../../store/directory/usage/usage-hosts.query.ts'
import { prepareMonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { type Append, type Outcome, writeBatch } from './batch.ts'
import { DayReadings, withUnbooked } from './day-sums.ts'
import { cannotRecord } from './faults.ts'
import type { LedgerWriter } from './ledger-writer.ts'
import { addSums, MonthSums, scopesOf } from './month-sums.ts'
import { type Cost, microUsd } from './price.ts'
import type { HostBudgetShares, MeteringCounts, MonthSpent, Spender, SpentSource, UsageRecord } from './types.ts'

export type MeteringDeps = {
  readonly store: Pick<DirectoryStore, 'db' | 'transact'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly cost: Cost
  /** The thread that writes. Absent: this one does. */
  readonly writer?: LedgerWriter
}

/** [startMs, endMs). */
type Period = { readonly startMs: number; readonly endMs: number }

export const flushIntervalMs = 100
/** After a write that failed. */
export const retryIntervalMs = 5_000
const batchRowsMax = 250
const batchGapMs = 5
const waitingMax = 20_000
const daysPageRows = 500
const daysPageGapMs = 1

export class Metering implements SpentSource {
  readonly #deps: MeteringDeps
  readonly #append: Append
  readonly #isInStore: (id: string) => boolean
  readonly #stopping = new AbortController()
  readonly #waiting: Usage[] = []
  /** Kept from the first query on: without budgets there is none. */
  #waitingSums: MonthSums | null = null
  readonly #monthSum: ReturnType<typeof prepareMonthSum>
  readonly #daysPage: ReadDaysPage
  readonly #ownMonthSum: ReturnType<typeof prepareOwnMonthSum>
  readonly #costOfOthers: ReturnType<typeof prepareCostOfOthers>
  readonly #dayReadings = new DayReadings()
  /** The first of those that wait. */
  #inFlight: InFlight | null = null
  #isFlushScheduled = false
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
    this.#costOfOthers = prepareCostOfOthers(deps.store.db)
  }

  /** Queues a record; after `stop` writes it immediately. Never throws: logs and counts a record that is lost. */
  record(record: UsageRecord): void {
    try {
      const row = rowOf(record, this.#deps.cost)
      if (this.#waiting.length >= waitingMax) throw new Error(`${waitingMax} records wait already`)
      this.#waiting.push(row)
      this.#waitingSums?.add(row)
      if (this.#stopping.signal.aborted) this.flush()
      else this.#scheduleFlush(flushIntervalMs)
    } catch (error) {
      this.#noteLost([record.id], error)
    }
  }

  /**
   * Fault metering_unavailable: so many rows wait that those of running requests may not all find room. For a request
   * that has not begun.
   */
  checkRoom(): void {
    if (this.#waiting.length >= waitingMax / 2) throw cannotRecord()
  }

  /** Writes the queue now. Never throws: what could not be written stays queued. */
  flush(): void {
    // Rows that the thread has are written again, which changes nothing.
    while (this.#waiting.length > 0 && this.#writeHere());
  }

  /** Writes records immediately; logs and counts those that are lost. Throws if the store is not writable now. */
  book(records: readonly UsageRecord[]): void {
    const rows = records.map(record => rowOf(record, this.#deps.cost))
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, rows)
    this.#note(outcome)
    if (!outcome.isWritten) throw new Error(outcome.error ?? 'usage could not be written')
  }

  /** This host's alone, exact: the queue is written first. */
  usage(organizationId: string, { startMs, endMs }: Period): UsageSum {
    this.flush()
    return sumUsage(this.#deps.store.db, { organizationId, startMs, endMs })
  }

  /** Current prices. */
  get cost(): Cost {
    return this.#deps.cost
  }

  /** By the store, and what waits for it: over all hosts, as far as others have reported. */
  spent(spender: Spender, month: string): MonthSpent {
    return this.#spent(spender, month, this.#monthSum)
  }

  /** This host's alone. */
  ownSpent(spender: Spender, month: string): MonthSpent {
    return this.#spent(spender, month, this.#ownMonthSum)
  }

  #spent(spender: Spender, month: string, monthSum: ReturnType<typeof prepareMonthSum>): MonthSpent {
    const { key, organization } = scopesOf(spender, month)
    if (this.#waitingSums === null) {
      this.#waitingSums = new MonthSums()
      for (const row of this.#waiting) this.#waitingSums.add(row)
    }
    const waiting = this.#waitingSums
    return this.#consistent(() => ({
      key: addSums(monthSum(key), waiting.of(key)),
      organization: addSums(monthSum(organization), waiting.of(organization)),
    }))
  }

  /** It is known always. */
  async load(): Promise<void> {}

  /** Each page is as of its reading; requests run in between. */
  days(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    return this.#dayReadings.read(scope, async after => {
      await this.#deps.clock.sleep(daysPageGapMs)
      return this.#consistent(() =>
        withUnbooked(this.#daysPage(scope, after, daysPageRows), { scope, after }, this.#waiting),
      )
    })
  }

  /**
   * For service A's usage summary: the exact sum over all hosts, rounded up once to whole micro-dollars. `period`: a
   * billing period of the organization.
   */
  inferenceCostMicroUsd(organizationId: string, period: Period): bigint {
    const own = this.usage(organizationId, period).costNanoUsd
    return microUsd(own + this.#costOfOthers({ organizationId, ...period }))
  }

  counts(): MeteringCounts {
    return { written: this.#written, lost: this.#lost, waiting: this.#waiting.length }
  }

  /** Writes the queue before it returns; later records are written one by one. Resolves once the thread has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    this.flush()
    await this.#deps.writer?.close()
    // Rows that could not be written while the thread held the lock.
    this.flush()
  }

  /** False: the batch could not be written and stays queued. */
  #writeHere(): boolean {
    const batch = this.#waiting.slice(0, batchRowsMax)
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, batch)
    return this.#take(outcome, batch.length)
  }

  async #writeThere(writer: LedgerWriter): Promise<boolean> {
    const inFlight: InFlight = { rows: this.#waiting.slice(0, batchRowsMax), isBooked: false }
    this.#inFlight = inFlight
    const outcome = await writer.write(inFlight.rows)
    if (!outcome.isWritten) {
      // A thread may have ended after its commit.
      if (inFlight.isBooked) this.#putBack(inFlight.rows.filter(row => !this.#isInStore(row.id)))
      // Or the store is not well: this connection is watched for damage.
      return this.#writeHere()
    }
    if (this.#inFlight === inFlight) this.#take(outcome, inFlight.rows.length)
    else if (inFlight.isBooked) this.#note(outcome)
    // They were written here as well, and those that were refused are noted.
    else this.#written += outcome.added
    return true
  }

  #putBack(rows: readonly Usage[]): void {
    this.#waiting.unshift(...rows)
    for (const row of rows) this.#waitingSums?.add(row)
  }

  /** False: nothing was written, and all of it stays queued. */
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
    // It has the first of the queue.
    this.#inFlight = null
    for (const row of this.#waiting.splice(0, rowCount)) this.#waitingSums?.remove(row)
  }

  /**
   * Reads store and queue together, by `read`. The thread may have written rows that are queued still: that is seen
   * after the reading, and then they leave the queue and it is read again.
   */
  #consistent<T>(read: () => T): T {
    const value = read()
    const inFlight = this.#inFlight
    if (inFlight === null || !this.#isBooked(inFlight.rows)) return value
    inFlight.isBooked = true
    this.#drop(inFlight.rows.length)
    return read()
  }

  /** All of a batch are written at once. Where the first or the last was refused, the thread's reply is waited for. */
  #isBooked(rows: readonly Usage[]): boolean {
    const [first, last] = [rows.at(0), rows.at(-1)]
    return first !== undefined && last !== undefined && this.#isInStore(first.id) && this.#isInStore(last.id)
  }

  /** One batch at a time, with a pause for requests in between. */
  #scheduleFlush(ms: number): void {
    if (this.#isFlushScheduled) return
    this.#isFlushScheduled = true
    const { signal } = this.#stopping
    void pause(this.#deps.clock, ms, signal)
      .then(() => this.#flushNext())
      .then(isWritten => {
        this.#isFlushScheduled = false
        if (this.#waiting.length > 0 && !signal.aborted) this.#scheduleFlush(isWritten ? batchGapMs : retryIntervalMs)
      })
  }

  #flushNext(): boolean | Promise<boolean> {
    if (this.#waiting.length === 0) return true
    const { writer } = this.#deps
    // Without its thread the ledger goes on here.
    return writer?.isAlive() === true && !this.#stopping.signal.aborted ? this.#writeThere(writer) : this.#writeHere()
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
 * A batch that the thread has written, or may yet write, while its rows are in the queue. `isBooked`: they were seen
 * in the store and have left the queue, before the thread has replied.
 */
type InFlight = { readonly rows: readonly Usage[]; isBooked: boolean }

/** No row is refused for its amounts: what a column cannot hold becomes the most that it can. */
function rowOf(record: UsageRecord, cost: Cost): Usage {
  const { id, atMs, caller, model, upstream, tokensSource, outcome, labels, ...given } = record
  const prompt = amountOf(given.tokens.prompt)
  const cached = Math.min(amountOf(given.tokens.cached ?? 0), prompt)
  const tokens = { prompt, completion: amountOf(given.tokens.completion), cached }
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
