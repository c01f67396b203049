// Launch documents of VMs: what their reports must contain, kept across restarts of the daemon. Effects: SQL.

import { eq } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type Launch, launches } from './vm.table.ts'

/** Records a launch before QEMU is started. A launch that was begun before and came to no QEMU is forgotten. */
export function recordLaunch(db: LedgerDb, launch: Launch): void {
  const { vmId: _, ...set } = launch
  db.insert(launches).values(launch).onConflictDoUpdate({ target: launches.vmId, set }).run()
}

/** Null: there was none, or an earlier release launched it, which kept no record. */
export function launchOf(db: LedgerDb, vmId: string): Launch | null {
  return db.select().from(launches).where(eq(launches.vmId, vmId)).get() ?? null
}
