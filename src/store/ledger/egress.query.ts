// Egress samples of VMs. Values only grow: what was once counted is never counted back. Effects: SQL.

import { eq, sql } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type EgressSample, egress } from './vm.table.ts'

/** Stores a sample and returns what is stored now: neither the count nor the first block is ever taken back. */
export function recordEgress(db: LedgerDb, sample: EgressSample): EgressSample {
  return db
    .insert(egress)
    .values(sample)
    .onConflictDoUpdate({
      target: egress.vmId,
      set: {
        usedBytes: sql`max(${egress.usedBytes}, ${sample.usedBytes})`,
        rescueBytes: sql`max(${egress.rescueBytes}, ${sample.rescueBytes})`,
        observedAtMs: sample.observedAtMs,
        blockedAtMs: sql`coalesce(${egress.blockedAtMs}, ${sample.blockedAtMs})`,
      },
    })
    .returning()
    .get()
}

export function egressOf(db: LedgerDb, vmId: string): EgressSample | null {
  return db.select().from(egress).where(eq(egress.vmId, vmId)).get() ?? null
}

export function listEgress(db: LedgerDb): EgressSample[] {
  return db.select().from(egress).all()
}
