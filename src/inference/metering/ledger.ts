// The usage ledger as the request path sees it: records go into a short queue and from there into the store, many in one transaction.
// Effects: the store. A power cut or a kill loses what the last moments recorded, at most `flushIntervalMs` of it; a stop loses nothing.

import { assert } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { prepareUsageAppend, sumUsage, type UsageSum } from '../../store/directory/usage.query.ts'
import type { Usage } from '../../store/directory/usage.table.ts'
import type { RecordUsage, UsageRecord } from '../types.ts'
import { type Cost, microUsd } from './price.ts'

export type MeteringDeps = {
  readonly store: DirectoryStore
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  readonly cost: Cost
}

/** [startMs, endMs). */
type Period = { readonly startMs: number; readonly endMs: number }

export type Metering = {
  readonly record: RecordUsage
  /** Writes what waits, now. Never throws: what could not be written waits on. */
  readonly flush: () => void
  /** Exact, with what waits. */
  readonly usage: (organizationId: string, period: Period) => UsageSum
  /** For service A's usage summary: the exact sum, rounded up once to whole micro-dollars. */
  readonly inferenceCostMicroUsd: (organizationId: string, period: Period) => bigint
  readonly counts: () => MeteringCounts
  /** Writes what waits; records that still come are written one by one. */
  readonly stop: () => void
}

export type MeteringCounts = {
  readonly written: number
  /** Refused by the ledger, or no room to wait in. Each was logged. */
  readonly lost: number
  readonly waiting: number
}

export const flushIntervalMs = 100
/** After a write that failed. */
export const retryIntervalMs = 5_000
const batchRowsMax = 250
const batchGapMs = 5
const waitingMax = 20_000

export function createMetering(deps: MeteringDeps): Metering {
  const { store, log } = deps
  const append = prepareUsageAppend(store.db)
  const stopping = new AbortController()
  const waiting: Usage[] = []
  let isTimed = false
  let written = 0
  let lost = 0

  const lose = (row: { id: string }, error: unknown) => {
    lost += 1
    log.error('a usage record was lost', { request: row.id, error })
  }
  /** Some of what waits. False: it could not be written. */
  const flushBatch = (): boolean => {
    if (waiting.length === 0) return true
    const batch = waiting.slice(0, batchRowsMax)
    const outcome = writeBatch({ store, append }, batch)
    for (const { row, error } of outcome.refused) lose(row, error)
    written += outcome.written
    waiting.splice(0, batch.length - outcome.left.length)
    if (outcome.left.length === 0) return true
    log.error('usage records could not be written and wait', { waiting: waiting.length, error: outcome.error })
    return false
  }
  const flush = () => {
    while (waiting.length > 0 && flushBatch());
  }
  /** Batch by batch; requests are answered in between. */
  const flushIn = (ms: number) => {
    if (isTimed) return
    isTimed = true
    deps.clock
      .sleep(ms, stopping.signal)
      .catch(() => {})
      .finally(() => {
        isTimed = false
        const isWritten = flushBatch()
        if (waiting.length > 0 && !stopping.signal.aborted) flushIn(isWritten ? batchGapMs : retryIntervalMs)
      })
  }

  return {
    record: record => {
      try {
        const row = rowOf(record, deps.cost)
        if (waiting.length >= waitingMax) return lose(row, new Error(`${waitingMax} records wait already`))
        waiting.push(row)
        if (stopping.signal.aborted) flush()
        else flushIn(flushIntervalMs)
      } catch (error) {
        lose(record, error)
      }
    },
    flush,
    usage: (organizationId, period) => {
      flush()
      return sumUsage(store.db, { organizationId, ...period })
    },
    inferenceCostMicroUsd: (organizationId, { startMs, endMs }) => {
      flush()
      return microUsd(sumUsage(store.db, { organizationId, startMs, endMs }).costNanoUsd)
    },
    counts: () => ({ written, lost, waiting: waiting.length }),
    stop: () => {
      stopping.abort()
      flush()
    },
  }
}

function rowOf({ id, atMs, caller, model, upstream, tokens, outcome }: UsageRecord, cost: Cost): Usage {
  for (const count of [tokens.prompt, tokens.completion]) {
    assert(Number.isSafeInteger(count) && count >= 0, 'a request has a whole number of tokens')
  }
  const costNanoUsd = cost(model, tokens)
  assert(costNanoUsd <= BigInt(Number.MAX_SAFE_INTEGER), 'one request costs less than nine million dollars')
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
    costNanoUsd: Number(costNanoUsd),
    outcome,
  }
}

type Ledger = { readonly store: Pick<DirectoryStore, 'transact'>; readonly append: (rows: readonly Usage[]) => number }

type Outcome = {
  readonly written: number
  /** The ledger will never take them. */
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

/** The row itself is at fault (an organization that is not there), not the disk. */
function isConstraint(error: unknown): boolean {
  const code = (of: unknown) => String(Reflect.get(Object(of), 'code') ?? '')
  return [error, Reflect.get(Object(error), 'cause')].some(of => code(of).startsWith('SQLITE_CONSTRAINT'))
}
