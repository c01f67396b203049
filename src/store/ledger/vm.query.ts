// Queries on VMs. State moves by compare-and-set only.

import { and, asc, eq, inArray, lt, ne, notExists, sql } from 'drizzle-orm'
import type { Db } from '../db.ts'
import { instances } from '../directory/instance.table.ts'
import { resources, type Vm, type VmState, vms } from './vm.table.ts'

export function insertVm(
  db: Db,
  vm: { id: string; hostId: string; image: string; vcpus: number; memoryMib: number; nowMs: number },
): void {
  db.insert(vms)
    .values({
      id: vm.id,
      hostId: vm.hostId,
      image: vm.image,
      vcpus: vm.vcpus,
      memoryMib: vm.memoryMib,
      desired: 'running',
      state: 'waiting',
      createdAtMs: vm.nowMs,
      changedAtMs: vm.nowMs,
    })
    .run()
}

export function vmById(db: Db, id: string): Vm | null {
  return db.select().from(vms).where(eq(vms.id, id)).get() ?? null
}

/** VMs of a host that are not gone, oldest first. */
export function listVms(db: Db, hostId: string): Vm[] {
  return db
    .select()
    .from(vms)
    .where(and(eq(vms.hostId, hostId), ne(vms.state, 'gone')))
    .orderBy(asc(vms.createdAtMs), sql`rowid`)
    .all()
}

export type VmMove = {
  readonly id: string
  readonly from: VmState
  readonly to: VmState
  readonly nowMs: number
  readonly address?: string | null
  readonly failureCode?: string
  readonly failureMessage?: string
}

/** Compare-and-set. False: someone moved it first; reread and decide again. */
export function moveVm(db: Db, move: VmMove): boolean {
  const { id, from, to, nowMs, ...set } = move
  return (
    db
      .update(vms)
      .set({ ...set, state: to, changedAtMs: nowMs })
      .where(and(eq(vms.id, id), eq(vms.state, from)))
      .returning({ id: vms.id })
      .all().length === 1
  )
}

/** Wishes a VM gone. Idempotent. */
export function dismissVm(db: Db, id: string): void {
  db.update(vms).set({ desired: 'gone' }).where(eq(vms.id, id)).run()
}

export type Reserved = {
  readonly vms: number
  readonly vcpus: number
  readonly memoryMib: number
  readonly booting: number
}

/** States in which a VM holds room on the host. */
const HOLDING = ['launching', 'booting', 'running', 'stopping'] as const satisfies readonly VmState[]

/** What VMs of a host hold right now. A failed VM holds room as long as its ledger names a process. */
export function reservedBy(db: Db, hostId: string): Reserved {
  const row = db
    .select({
      vms: sql<number>`count(*)`,
      vcpus: sql<number>`coalesce(sum(${vms.vcpus}), 0)`,
      memoryMib: sql<number>`coalesce(sum(${vms.memoryMib}), 0)`,
      booting: sql<number>`coalesce(sum(${vms.state} IN ('launching', 'booting')), 0)`,
    })
    .from(vms)
    .where(
      and(
        eq(vms.hostId, hostId),
        sql`(${inArray(vms.state, [...HOLDING])} OR (${vms.state} = 'failed' AND EXISTS
          (SELECT 1 FROM ${resources} WHERE ${resources.vmId} = ${vms.id} AND ${resources.kind} = 'qemu')))`,
      ),
    )
    .get()
  return row ?? { vms: 0, vcpus: 0, memoryMib: 0, booting: 0 }
}

/** Deletes rows of gone VMs that no instance names any more. Returns how many. */
export function purgeGoneVms(db: Db, purge: { changedBeforeMs: number; limit: number }): number {
  const referenced = db.select({ id: instances.id }).from(instances).where(eq(instances.vmId, vms.id))
  const gone = db
    .select({ id: vms.id })
    .from(vms)
    .where(and(eq(vms.state, 'gone'), lt(vms.changedAtMs, purge.changedBeforeMs), notExists(referenced)))
    .limit(purge.limit)
    .all()
  if (gone.length === 0) return 0
  const ids = gone.map(row => row.id)
  return db.delete(vms).where(inArray(vms.id, ids)).returning({ id: vms.id }).all().length
}
