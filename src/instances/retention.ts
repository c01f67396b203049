// Removes what has outlived its keeping: terminated records (contract 2.2, 8) and stored answers. Effects: SQL, sleeping.
// Every batch is one short transaction that finds its own work, so it may be stopped and started anywhere.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { idempotencyTtlMs } from '../contract/instance.ts'
import type { Store } from '../store/db.ts'
import { deleteExpiredIdempotency } from '../store/directory/idempotency.query.ts'
import { deleteExpired } from '../store/directory/instance.query.ts'
import { periodDaysMax } from './billing.ts'

export type JanitorDeps = {
  readonly store: Pick<Store, 'transact'>
  readonly clock: Clock
  readonly log: Logger
  readonly retentionDays: number
}

export type Janitor = {
  /** Everything that is due now. Returns how much went. */
  readonly sweep: (signal: AbortSignal) => Promise<Swept>
  /** Sweeps at once and then at every interval until the signal. Never rejects. */
  readonly run: (signal: AbortSignal) => Promise<void>
}

export type Swept = { readonly instances: number; readonly answers: number }

export const sweepIntervalMs = 10 * 60 * 1000
const batchRowsMax = 500
const batchesPerSweepMax = 200
const dayMs = 24 * 60 * 60 * 1000

export function createJanitor(deps: JanitorDeps): Janitor {
  const { store, clock } = deps
  // Not before the longest billing period has passed: the hours of the current one are counted from these records.
  const keptMs = Math.max(deps.retentionDays, periodDaysMax) * dayMs

  /** One kind, batch by batch; other requests run in between. What is left over waits for the next sweep. */
  const drain = async (signal: AbortSignal, batch: () => number): Promise<number> => {
    let removed = 0
    for (let count = 0; count < batchesPerSweepMax && !signal.aborted; count += 1) {
      const rows = batch()
      removed += rows
      if (rows < batchRowsMax) break
      await clock.sleep(0, signal)
    }
    return removed
  }

  const sweep = async (signal: AbortSignal): Promise<Swept> => {
    // The time is read per batch: a clock that has jumped back only means that less is due.
    const instances = await drain(signal, () =>
      store.transact(tx => deleteExpired(tx, { terminatedBeforeMs: clock.nowMs() - keptMs, limit: batchRowsMax })),
    )
    const answers = await drain(signal, () =>
      store.transact(tx =>
        deleteExpiredIdempotency(tx, { createdAtOrBeforeMs: clock.nowMs() - idempotencyTtlMs, limit: batchRowsMax }),
      ),
    )
    return { instances, answers }
  }

  return {
    sweep,
    run: async signal => {
      while (!signal.aborted) {
        try {
          const swept = await sweep(signal)
          if (swept.instances + swept.answers > 0) deps.log.info('expired records removed', swept)
        } catch (error) {
          if (!signal.aborted) deps.log.error('a sweep failed', { error })
        }
        await clock.sleep(sweepIntervalMs, signal).catch(() => {})
      }
    },
  }
}
