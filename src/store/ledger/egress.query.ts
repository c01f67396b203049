// Egress of VMs: samples and limits. Both only grow. Effects: SQL.

import { and, eq, isNull, lt, or, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { LedgerDb } from '../db.ts'
import { type EgressRow, type EgressSample, egress, vms } from './vm.table.ts'

type NewEgressSample = EgressSample & Partial<Pick<EgressRow, 'tapBytes'>>

/**
 * Stores at most one sample per VM, all or none, and returns the stored rows in the order of the samples. A count never
 * falls, and a block keeps the time of the first sample that showed it.
 */
export function recordEgress(db: LedgerDb, samples: readonly NewEgressSample[]): EgressRow[] {
  assert(new Set(samples.map(({ vmId }) => vmId)).size === samples.length, 'of each VM one sample')
  const rows = samples.map(({ vmId, usedBytes, rescueBytes, observedAtMs, blockedAtMs, tapBytes = null }) => {
    for (const count of [usedBytes, rescueBytes]) {
      assert(Number.isSafeInteger(count) && count >= 0, 'egress is a count of bytes')
    }
    return [vmId, usedBytes, rescueBytes, observedAtMs, blockedAtMs, tapBytes]
  })
  // One statement for all, because a statement per row took 0.25 s for 1,000. Without `WHERE true`, ON would belong to
  // a join.
  const stored = db.all<EgressRow>(sql`
    INSERT INTO egress (vm_id, used_bytes, rescue_bytes, observed_at_ms, blocked_at_ms, tap_bytes)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
    FROM json_each(${JSON.stringify(rows)}) WHERE true
    ON CONFLICT (vm_id) DO UPDATE SET
      used_bytes = max(used_bytes, excluded.used_bytes),
      rescue_bytes = max(rescue_bytes, excluded.rescue_bytes),
      observed_at_ms = excluded.observed_at_ms,
      blocked_at_ms = iif(excluded.blocked_at_ms IS NULL, NULL, coalesce(blocked_at_ms, excluded.blocked_at_ms)),
      tap_bytes = excluded.tap_bytes
    RETURNING vm_id AS vmId, used_bytes AS usedBytes, rescue_bytes AS rescueBytes, observed_at_ms AS observedAtMs,
      blocked_at_ms AS blockedAtMs, tap_bytes AS tapBytes`)
  // SQLite promises no order of what it returns.
  const byVm = new Map(stored.map(row => [row.vmId, row]))
  return samples.flatMap(({ vmId }) => byVm.get(vmId) ?? [])
}

export function egressOf(db: LedgerDb, vmId: string): EgressRow | null {
  return db.select().from(egress).where(eq(egress.vmId, vmId)).get() ?? null
}

export function listEgress(db: LedgerDb): EgressRow[] {
  return db.select().from(egress).all()
}

/** Raises a VM's own limit. False if its own limit is as high already, or there is no such VM. */
export function raiseEgressLimit(db: LedgerDb, { vmId, limitBytes }: { vmId: string; limitBytes: number }): boolean {
  assert(Number.isSafeInteger(limitBytes) && limitBytes > 0, 'a limit is a count of bytes')
  const isLower = or(isNull(vms.egressLimitBytes), lt(vms.egressLimitBytes, limitBytes))
  return (
    db
      .update(vms)
      .set({ egressLimitBytes: limitBytes })
      .where(and(eq(vms.id, vmId), isLower))
      .returning({ id: vms.id })
      .all().length === 1
  )
}
