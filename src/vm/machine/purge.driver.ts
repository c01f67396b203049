// Removes the rows of VMs that are gone, several at a time. Effects: the ledger, sleeping.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { ClockGuard } from '../../base/work/clock-guard.ts'
import type { LedgerStore } from '../../store/db.ts'
import { purgeGoneVms } from '../../store/ledger/vm.query.ts'

export type PurgeDeps = {
  readonly ledger: Pick<LedgerStore, 'db'>
  readonly clock: Clock
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  readonly log: Logger
}

const intervalMs = 60_000
/** Time for which a VM that is gone can still be looked up. */
const goneMs = 60_000
/** No share: deletes of this daemon. */
const rowsMax = 500

/** Runs now and then at every interval until the signal is aborted. Never rejects. */
export async function runPurge({ ledger, clock, guard, log }: PurgeDeps, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      if (guard.mayDelete()) purgeGoneVms(ledger.db, { changedBeforeMs: clock.nowMs() - goneMs, limit: rowsMax })
    } catch (error) {
      log.warn('rows of VMs that are gone were not removed', { error })
    }
    await pause(clock, intervalMs, signal)
  }
}
