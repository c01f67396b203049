// Queries on the warm pool. Effects: SQL.

import { and, asc, eq, isNotNull, sql } from 'drizzle-orm'
import type { DirectoryDb } from '../db.ts'
import { instances } from './instance.table.ts'
import { type PoolVm, poolVms } from './pool.table.ts'

export function insertPoolVm(db: DirectoryDb, vm: Omit<PoolVm, 'boxKey' | 'createdAtMs'> & { nowMs: number }): void {
  const { nowMs, ...fields } = vm
  db.insert(poolVms)
    .values({ ...fields, boxKey: null, createdAtMs: nowMs })
    .run()
}

/** The pool of a host, oldest first. */
export function listPoolVms(db: DirectoryDb, hostId: string): PoolVm[] {
  return db.select().from(poolVms).where(eq(poolVms.hostId, hostId)).orderBy(asc(poolVms.createdAtMs), sql`rowid`).all()
}

/** Compare-and-set: true for exactly one caller, who decides what becomes of the VM. */
export function removePoolVm(db: DirectoryDb, vmId: string): boolean {
  return db.delete(poolVms).where(eq(poolVms.vmId, vmId)).returning({ vmId: poolVms.vmId }).all().length === 1
}

export function setPoolBoxKey(db: DirectoryDb, { vmId, boxKey }: { vmId: string; boxKey: string }): void {
  db.update(poolVms).set({ boxKey }).where(eq(poolVms.vmId, vmId)).run()
}

/** VMs of a host that a record of an instance or of the pool names. */
export function namedVms(db: DirectoryDb, hostId: string): ReadonlySet<string> {
  const ofInstances = db
    .select({ vmId: instances.vmId })
    .from(instances)
    .where(and(eq(instances.hostId, hostId), isNotNull(instances.vmId)))
    .all()
  return new Set([...ofInstances, ...listPoolVms(db, hostId)].flatMap(({ vmId }) => vmId ?? []))
}
