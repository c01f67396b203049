// Egress of VMs: samples and limits. Counts and limits only grow: what was once counted is never counted back. Effects: SQL.

import { and, eq, isNull, lt, or, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { LedgerDb } from '../db.ts'
import { type EgressRow, type EgressSample, egress, vms } from './vm.table.ts'

/** Stores a sample and returns what is stored now: no count is ever taken back, and a block is that of the first sample that showed it. */
export function recordEgress(
  db: LedgerDb,
  { tapBytes = null, ...sample }: EgressSample & Partial<Pick<EgressRow, 'tapBytes'>>,
): EgressRow {
  return db
    .insert(egress)
    .values({ ...sample, tapBytes })
    .onConflictDoUpdate({
      target: egress.vmId,
      set: {
        usedBytes: sql`max(${egress.usedBytes}, ${sample.usedBytes})`,
        rescueBytes: sql`max(${egress.rescueBytes}, ${sample.rescueBytes})`,
        observedAtMs: sample.observedAtMs,
        tapBytes,
        blockedAtMs: sample.blockedAtMs === null ? null : sql`coalesce(${egress.blockedAtMs}, ${sample.blockedAtMs})`,
      },
    })
    .returning()
    .get()
}

export function egressOf(db: LedgerDb, vmId: string): EgressRow | null {
  return db.select().from(egress).where(eq(egress.vmId, vmId)).get() ?? null
}

export function listEgress(db: LedgerDb): EgressRow[] {
  return db.select().from(egress).all()
}

/** Gives a VM a higher limit than it had. False: it has that or a higher one of its own already, or there is no such VM. */
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
