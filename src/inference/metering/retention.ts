// Bounds the usage ledger: deletes old usage, and gateway keys that ended long ago. Effects: the store, sleeping.
// Each batch is one statement that selects its own rows, so deletion may stop and resume anywhere.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { dayMs } from '../../base/time.ts'
import type { ClockGuard } from '../../base/work/clock-guard.ts'
import { sweep } from '../../base/work/sweep.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { purgeGatewayKeys } from '../../store/directory/gateway-key.query.ts'
import { dayOf, monthOf } from '../../store/directory/usage/periods.ts'
import { purgeUsage } from '../../store/directory/usage/usage.query.ts'
import { purgeUsageDays } from '../../store/directory/usage/usage-day.query.ts'
import { purgeUsageMonths } from '../../store/directory/usage/usage-month.query.ts'

export type LedgerRetentionDeps = {
  readonly store: Pick<DirectoryStore, 'db'>
  readonly clock: Clock
  readonly log: Logger
  readonly retentionDays: number
  readonly guard: Pick<ClockGuard, 'mayDelete'>
}

export const retentionIntervalMs = 60_000
/** No share: deletes of this process. */
export const retentionBatchRowsMax = 250
/** Pause in which requests are answered. */
export const retentionBatchGapMs = 20
/** Half a million rows per round; the rest is deleted in the next round. No share: deletes of this process. */
const batchesPerRoundMax = 2_000

/** Deletes expired rows now and at every interval until the signal is aborted. Never rejects. */
export async function runLedgerRetention(deps: LedgerRetentionDeps, signal: AbortSignal): Promise<void> {
  await sweep({ clock: deps.clock, intervalMs: retentionIntervalMs, signal }, async () => {
    try {
      const removed = deps.guard.mayDelete() ? await purgeRound(deps, signal) : { usage: 0, keys: 0 }
      if (removed.usage + removed.keys > 0) deps.log.info('old usage and ended gateway keys removed', removed)
    } catch (error) {
      if (!signal.aborted) deps.log.error('old usage was not removed', { error })
    }
  })
}

async function purgeRound({ store, clock, retentionDays }: LedgerRetentionDeps, signal: AbortSignal) {
  // Read for each batch, because less is due if the clock is set back.
  const beforeMs = () => clock.nowMs() - retentionDays * dayMs
  const limit = retentionBatchRowsMax
  const drain = async (batch: () => number): Promise<number> => {
    let removed = 0
    for (let count = 0; count < batchesPerRoundMax && !signal.aborted; count += 1) {
      const rows = batch()
      removed += rows
      if (rows < limit) break
      await clock.sleep(retentionBatchGapMs, signal)
    }
    return removed
  }
  const usage = await drain(() => purgeUsage(store.db, { beforeMs: beforeMs(), limit }))
  // A request that was running when its key ended is recorded after the key's end.
  const keys = await drain(
    () => purgeGatewayKeys(store.db, { endedBeforeMs: beforeMs() - dayMs, usageBeforeMs: beforeMs(), limit }).length,
  )
  const before = () => Math.max(0, beforeMs())
  await drain(() => purgeUsageMonths(store.db, { before: monthOf(before()), limit }))
  await drain(() => purgeUsageDays(store.db, { before: dayOf(before()), limit }))
  return { usage, keys }
}
