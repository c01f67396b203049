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

/** How many addresses of the family that has more rest at a time, and when the next one is free. Changes nothing. */
export function restsAt(
  db: LedgerDb,
  at: { nowMs: number; restMs: number },
): { readonly count: number; readonly nextFreeMs: number | null } {
  const { nowMs, restMs } = at
  const rows = db
    .select()
    .from(restingAddresses)
    .where(gt(restingAddresses.sinceMs, nowMs - restMs))
    .all()
  const v6 = rows.filter(({ address }) => address.includes(':')).length
  // One that is of the future begins its rest at the next look for a place.
  const ends = rows.map(({ sinceMs }) => Math.min(sinceMs, nowMs) + restMs)
  return { count: Math.max(v6, rows.length - v6), nextFreeMs: ends.length === 0 ? null : Math.min(...ends) }
}

/** Addresses that rest; those past `restMs` are deleted. After the clock jumped back, the rest period starts over. */
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
