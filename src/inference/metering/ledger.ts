// The usage ledger on the request path: records enter a short queue and go from there into the store, many per
// transaction. Effects: the store. A crash loses the records of at most the last `flushIntervalMs`; a stop loses none.

import { type Clock, pause } from '../../base/clock.ts'
import { systemErrorCode } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { prepareUsageAppend, sumUsage, type UsageSum } from '../../store/directory/usage/usage.query.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import {
  type DayScope,
  type DaySum,
  prepareDaysPage,
  type ReadDaysPage,
} from '../../store/directory/usage/usage-day.query.ts'
import { prepareMonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { DayReadings, withUnbooked } from './day-sums.ts'
import { addSums, MonthSums, scopesOf } from './month-sums.ts'
import { type Cost, microUsd } from './price.ts'
import type { MeteringCounts, MonthSpent, Spender, SpentSource, UsageRecord } from './types.ts'

export type MeteringDeps = {
  readonly store: DirectoryStore
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly cost: Cost
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
  readonly #stopping = new AbortController()
  readonly #waiting: Usage[] = []
  /** Kept from the first query on: without budgets there is none. */
  #waitingSums: MonthSums | null = null
  readonly #monthSum: ReturnType<typeof prepareMonthSum>
  readonly #daysPage: ReadDaysPage
  readonly #dayReadings = new DayReadings()
  #isFlushScheduled = false
  #written = 0
  #lost = 0

  constructor(deps: MeteringDeps) {
    this.#deps = deps
    this.#append = prepareUsageAppend(deps.store.db)
    this.#monthSum = prepareMonthSum(deps.store.db)
    this.#daysPage = prepareDaysPage(deps.store.db)
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

  /** Writes the queue now. Never throws: what could not be written stays queued. */
  flush(): void {
    while (this.#waiting.length > 0 && this.#flushBatch());
  }

  /** Writes records immediately; logs and counts those that are lost. Throws if the store is not writable now. */
  book(records: readonly UsageRecord[]): void {
    const rows = records.map(record => rowOf(record, this.#deps.cost))
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, rows)
    this.#noteRefused(outcome)
    this.#written += outcome.written
    if (outcome.left.length > 0) throw outcome.error
  }

  /** Exact: the queue is written first. */
  usage(organizationId: string, { startMs, endMs }: Period): UsageSum {
    this.flush()
    return sumUsage(this.#deps.store.db, { organizationId, startMs, endMs })
  }

  /** Current prices. */
  get cost(): Cost {
    return this.#deps.cost
  }

  /** By the store, and what waits for it. */
  spent(spender: Spender, month: string): MonthSpent {
    const { key, organization } = scopesOf(spender, month)
    if (this.#waitingSums === null) {
      this.#waitingSums = new MonthSums()
      for (const row of this.#waiting) this.#waitingSums.add(row)
    }
    const waiting = this.#waitingSums
    return {
      key: addSums(this.#monthSum(key), waiting.of(key)),
      organization: addSums(this.#monthSum(organization), waiting.of(organization)),
    }
  }

  /** It is known always. */
  async load(): Promise<void> {}

  /** Each page is as of its reading; requests run in between. */
  days(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    return this.#dayReadings.read(scope, async after => {
      await this.#deps.clock.sleep(daysPageGapMs)
      return withUnbooked(this.#daysPage(scope, after, daysPageRows), { scope, after }, this.#waiting)
    })
  }

  /** For service A's usage summary: the exact sum, rounded up once to whole micro-dollars. */
  inferenceCostMicroUsd(organizationId: string, period: Period): bigint {
    return microUsd(this.usage(organizationId, period).costNanoUsd)
  }

  counts(): MeteringCounts {
    return { written: this.#written, lost: this.#lost, waiting: this.#waiting.length }
  }

  /** Writes the queue; later records are written one by one. */
  stop(): void {
    this.#stopping.abort()
    this.flush()
  }

  /** False: some of the batch could not be written and stays queued. */
  #flushBatch(): boolean {
    if (this.#waiting.length === 0) return true
    const batch = this.#waiting.slice(0, batchRowsMax)
    const outcome = writeBatch({ store: this.#deps.store, append: this.#append }, batch)
    this.#noteRefused(outcome)
    this.#written += outcome.written
    for (const row of this.#waiting.splice(0, batch.length - outcome.left.length)) this.#waitingSums?.remove(row)
    if (outcome.left.length === 0) return true
    const fields = { waiting: this.#waiting.length, error: outcome.error }
    this.#deps.log.error('usage records could not be written and stay queued', fields)
    return false
  }

  /** One batch at a time, with a pause for requests in between. */
  #scheduleFlush(ms: number): void {
    if (this.#isFlushScheduled) return
    this.#isFlushScheduled = true
    const { signal } = this.#stopping
    void pause(this.#deps.clock, ms, signal).then(() => {
      this.#isFlushScheduled = false
      const isWritten = this.#flushBatch()
      if (this.#waiting.length > 0 && !signal.aborted) this.#scheduleFlush(isWritten ? batchGapMs : retryIntervalMs)
    })
  }

  /** One line per batch, so that bad rows do not fill the log. */
  #noteRefused({ refused }: Outcome): void {
    if (refused.length > 0)
      this.#noteLost(
        refused.map(({ row }) => row.id),
        refused[0]?.error,
      )
  }

  #noteLost(ids: readonly string[], error: unknown): void {
    this.#lost += ids.length
    this.#deps.log.error('usage records were lost', { requests: ids, error })
  }
}

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

/** Gives the number of rows that were not there before. */
type Append = (rows: readonly Usage[]) => number

type Ledger = { readonly store: Pick<DirectoryStore, 'transact'>; readonly append: Append }

type Outcome = {
  readonly written: number
  /** The store will never take them. */
  readonly refused: readonly { readonly row: Usage; readonly error: unknown }[]
  /** To be tried again: the end of the batch, or all of it. */
  readonly left: readonly Usage[]
  readonly error: unknown
}

/** All rows in one transaction; where that fails one by one, so that a bad row costs only itself. */
function writeBatch({ store, append }: Ledger, batch: readonly Usage[]): Outcome {
  try {
    const written = store.transact(() => append(batch))
    return { written, refused: [], left: [], error: null }
  } catch (error) {
    if (!isConstraint(error)) return { written: 0, refused: [], left: batch, error }
  }
  let written = 0
  const refused: { row: Usage; error: unknown }[] = []
  for (const [index, row] of batch.entries()) {
    try {
      written += append([row])
    } catch (error) {
      if (!isConstraint(error)) return { written, refused, left: batch.slice(index), error }
      refused.push({ row, error })
    }
  }
  return { written, refused, left: [], error: null }
}

/** The row itself is at fault (an organization that does not exist), not the disk. */
function isConstraint(error: unknown): boolean {
  const errors = [error, error instanceof Error ? error.cause : null]
  return errors.some(error => systemErrorCode(error)?.startsWith('SQLITE_CONSTRAINT'))
}
