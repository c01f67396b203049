// Launch documents of VMs: what their reports must contain, kept across restarts of the daemon. Effects: SQL.

import { eq } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type Launch, launches } from './vm.table.ts'

/** Records a launch before QEMU starts, replacing one that came to no QEMU. */
export function recordLaunch(db: LedgerDb, launch: Launch): void {
  const { vmId: _, ...set } = launch
  db.insert(launches).values(launch).onConflictDoUpdate({ target: launches.vmId, set }).run()
}

/** Null if it has none. */
export function launchOf(db: LedgerDb, vmId: string): Launch | null {
  return db.select().from(launches).where(eq(launches.vmId, vmId)).get() ?? null
}
