// Removes old rows of the record of commands. Effects: SQL, sleeping.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { dayMs } from '../../base/time.ts'
import type { ClockGuard } from '../../base/work/clock-guard.ts'
import { sweep } from '../../base/work/sweep.ts'
import type { LedgerStore } from '../../store/db.ts'
import { deleteExpiredAudit } from '../../store/ledger/audit.query.ts'

export type AuditRetentionDeps = {
  readonly ledger: LedgerStore
  readonly clock: Clock
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  readonly log: Logger
  readonly keptDays: number
}

const intervalMs = 60 * 60 * 1000
/** No share: deletes of this daemon. */
const batchRowsMax = 1_000

/**
 * Deletes old rows now and then every hour, until the signal is aborted. Deletes nothing while the clock is not
 * trusted. Never rejects.
 */
export async function runAuditRetention(deps: AuditRetentionDeps, signal: AbortSignal): Promise<void> {
  const { ledger, clock, guard, log, keptDays } = deps
  await sweep({ clock, intervalMs, signal }, () => {
    try {
      if (!guard.mayDelete()) return
      const beforeMs = clock.nowMs() - keptDays * dayMs
      const removed = deleteExpiredAudit(ledger.db, { beforeMs, limit: batchRowsMax })
      if (removed > 0) log.info('old commands of operators removed', { removed })
    } catch (error) {
      if (!signal.aborted) log.error('old commands of operators were not removed', { error })
    }
  })
}
