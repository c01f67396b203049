// Keeps the ledger bounded: usage and ended gateway keys go when their time is over. Effects: the store, sleeping.
// Every batch is one statement that finds its own work, so it may be stopped and started anywhere.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { purgeGatewayKeys } from '../../store/directory/gateway-key.query.ts'
import { purgeUsage } from '../../store/directory/usage.query.ts'

export type LedgerRetentionDeps = {
  readonly store: Pick<DirectoryStore, 'db'>
  readonly clock: Pick<Clock, 'nowMs' | 'sleep'>
  readonly log: Logger
  readonly retentionDays: number
}

export const retentionIntervalMs = 60_000
export const retentionBatchRowsMax = 250
/** Requests are answered in between. */
export const retentionBatchGapMs = 20
/** Half a million rows a round; what is left over waits for the next. */
const batchesPerRoundMax = 2_000
const dayMs = 24 * 60 * 60 * 1000

/** Removes what is due at once and then at every interval, until the signal. Never rejects. */
export async function runLedgerRetention(deps: LedgerRetentionDeps, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const removed = await purgeRound(deps, signal)
      if (removed.usage + removed.keys > 0) deps.log.info('old usage and ended gateway keys removed', removed)
    } catch (error) {
      if (!signal.aborted) deps.log.error('old usage was not removed', { error })
    }
    await deps.clock.sleep(retentionIntervalMs, signal).catch(() => {})
  }
}

async function purgeRound({ store, clock, retentionDays }: LedgerRetentionDeps, signal: AbortSignal) {
  // The time is read per batch: a clock that has jumped back only means that less is due.
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
  // A request that was under way when its key ended is in the ledger a little later than that.
  const keys = await drain(
    () => purgeGatewayKeys(store.db, { endedBeforeMs: beforeMs() - dayMs, usageBeforeMs: beforeMs(), limit }).length,
  )
  return { usage, keys }
}
