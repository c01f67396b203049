// Addresses that VMs have given back, and that rest before another VM gets them. Effects: SQL.

import { gt, lte } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { restingAddresses } from './vm.table.ts'

/** Starts the rest of an address, or starts it again. */
export function restAddress(db: LedgerDb, rest: { address: string; nowMs: number }): void {
  const { address, nowMs: sinceMs } = rest
  db.insert(restingAddresses)
    .values({ address, sinceMs })
    .onConflictDoUpdate({ target: restingAddresses.address, set: { sinceMs } })
    .run()
}

/** Addresses that rest; those past `restMs` are deleted. After the clock jumped back, the rest begins anew. */
export function restingAt(db: LedgerDb, at: { nowMs: number; restMs: number }): string[] {
  const { nowMs, restMs } = at
  db.update(restingAddresses).set({ sinceMs: nowMs }).where(gt(restingAddresses.sinceMs, nowMs)).run()
  db.delete(restingAddresses)
    .where(lte(restingAddresses.sinceMs, nowMs - restMs))
    .run()
  return db
    .select()
    .from(restingAddresses)
    .all()
    .map(row => row.address)
}
