// Queries on egress samples. Values only grow: what was once counted is never counted back.

import { eq, sql } from 'drizzle-orm'
import type { Db } from '../db.ts'
import { type Egress, egress } from './vm.table.ts'

export type EgressSample = {
  readonly vmId: string
  readonly usedBytes: number
  readonly observedAtMs: number
  readonly blocked: boolean
}

/** Stores samples; a smaller value than the stored one is kept out. */
export function recordEgress(db: Db, samples: readonly EgressSample[]): void {
  for (const sample of samples) {
    const blockedAtMs = sample.blocked ? sample.observedAtMs : null
    db.insert(egress)
      .values({ vmId: sample.vmId, usedBytes: sample.usedBytes, observedAtMs: sample.observedAtMs, blockedAtMs })
      .onConflictDoUpdate({
        target: egress.vmId,
        set: {
          usedBytes: sql`max(${egress.usedBytes}, ${sample.usedBytes})`,
          observedAtMs: sample.observedAtMs,
          blockedAtMs: sql`coalesce(${egress.blockedAtMs}, ${blockedAtMs})`,
        },
      })
      .run()
  }
}

export function egressOf(db: Db, vmId: string): Egress | null {
  return db.select().from(egress).where(eq(egress.vmId, vmId)).get() ?? null
}

export function listEgress(db: Db): Egress[] {
  return db.select().from(egress).all()
}
