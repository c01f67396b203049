// Removes expired records: terminated instances (contract 2.2, 8) and stored responses. Effects: SQL, sleeping. Each
// batch is one short transaction that finds its own work, so it may stop and start at any point.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { dayMs } from '../base/time.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { sweep } from '../base/work/sweep.ts'
import { idempotencyTtlMs } from '../contract/http/instance.ts'
import type { DirectoryDb, DirectoryStore, LedgerDb } from '../store/db.ts'
import { deleteExpiredIdempotency } from '../store/directory/idempotency.query.ts'
import { deleteExpired } from '../store/directory/instance.query.ts'
import { readMeta, swapMeta } from '../store/ledger/meta.query.ts'
import { periodDaysMax } from './billing.ts'

export type RetentionDeps = {
  readonly directory: Pick<DirectoryStore, 'change'>
  readonly clock: Clock
  readonly log: Logger
  readonly retentionDays: number
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  /** Called before records of instances that ended before this time are removed. */
  readonly onRemoval?: (endedBeforeMs: number) => void
}

export type RemovedCounts = { readonly instances: number; readonly responses: number }

export const retentionIntervalMs = 10 * 60 * 1000
/** No share: deletes of this daemon. */
const batchRowsMax = 500
/** No share: deletes of this daemon. */
const batchesPerRoundMax = 200

/**
 * Returns how long records are kept: at least the longest billing period, because the current period's hours are
 * counted from them.
 */
export function recordsKeptMs(retentionDays: number): number {
  return Math.max(retentionDays, periodDaysMax) * dayMs
}

const removedName = 'instance_records_removed_before_ms'

/** Keeps until when this host has removed records: a later setting of the retention does not bring them back. */
export function noteRemoval(db: LedgerDb, endedBeforeMs: number): void {
  if (endedBeforeMs > removedBeforeMs(db)) swapMeta(db, removedName, String(endedBeforeMs))
}

/** Records of instances that ended before this time may be removed; 0 if none was. */
export function removedBeforeMs(db: LedgerDb): number {
  return Number(readMeta(db, removedName) ?? 0)
}

/** Removes expired records at once and then at every interval, until the signal is aborted. Never rejects. */
export async function runRetention(deps: RetentionDeps, signal: AbortSignal): Promise<void> {
  await sweep({ clock: deps.clock, intervalMs: retentionIntervalMs, signal }, async () => {
    try {
      const removed = deps.guard.mayDelete() ? await removeExpired(deps, signal) : { instances: 0, responses: 0 }
      if (removed.instances + removed.responses > 0) deps.log.info('expired records removed', removed)
    } catch (error) {
      if (!signal.aborted) deps.log.error('expired records were not removed', { error })
    }
  })
}

/** Removes all expired records once. Returns the number of removed records. */
export async function removeExpired(deps: Omit<RetentionDeps, 'guard'>, signal: AbortSignal): Promise<RemovedCounts> {
  const { clock } = deps
  const keptMs = recordsKeptMs(deps.retentionDays)
  deps.onRemoval?.(clock.nowMs() - keptMs)
  const limit = batchRowsMax
  // The time is read per batch: if the clock was set back, fewer records are due.
  const instances = await removeInBatches(deps, signal, tx =>
    deleteExpired(tx, { terminatedBeforeMs: clock.nowMs() - keptMs, limit }),
  )
  const responses = await removeInBatches(deps, signal, tx =>
    deleteExpiredIdempotency(tx, { createdAtOrBeforeMs: clock.nowMs() - idempotencyTtlMs, limit }),
  )
  return { instances, responses }
}

/** Removes one kind in batches, with other requests in between. The next round continues. */
async function removeInBatches(
  { directory, clock }: Pick<RetentionDeps, 'directory' | 'clock'>,
  signal: AbortSignal,
  removeBatch: (tx: DirectoryDb) => number,
): Promise<number> {
  let removed = 0
  for (let count = 0; count < batchesPerRoundMax && !signal.aborted; count += 1) {
    const rows = await directory.change(removeBatch)
    removed += rows
    if (rows < batchRowsMax) break
    await clock.sleep(0, signal)
  }
  return removed
}
