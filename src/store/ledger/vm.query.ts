// Queries on VMs. State moves by compare-and-set only. Effects: SQL.

import { and, asc, count, eq, inArray, isNotNull, lt, ne, or, type SQL, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import { workloadBytesMax } from '../../contract/vm/workload.ts'
import type { LedgerDb } from '../db.ts'
import { resources, type Vm, type VmState, vms } from './vm.table.ts'

export type NewVm = Pick<Vm, 'id' | 'hostId' | 'image' | 'vcpus' | 'memoryMib'> &
  Partial<Pick<Vm, 'scratchGib' | 'exchangeGib' | 'network' | 'workload' | 'modelDisk' | 'gpus'>> & {
    readonly nowMs: number
  }

/** Adds a VM in `waiting`. False if the id exists, and its row is unchanged. */
export function insertVm(db: LedgerDb, { nowMs, ...vm }: NewVm): boolean {
  assert(Buffer.byteLength(vm.workload ?? '') <= workloadBytesMax, 'a workload has at most 1 MiB')
  return (
    db
      .insert(vms)
      .values({ ...vm, desired: 'running', state: 'waiting', createdAtMs: nowMs, changedAtMs: nowMs })
      .onConflictDoNothing({ target: vms.id })
      .returning({ id: vms.id })
      .all().length === 1
  )
}

export function vmById(db: LedgerDb, id: string): Vm | null {
  return db.select().from(vms).where(eq(vms.id, id)).get() ?? null
}

/** By id; a missing VM is absent. */
export function vmsById(db: LedgerDb, ids: readonly string[]): Map<string, Vm> {
  const found = db
    .select()
    .from(vms)
    .where(inArray(vms.id, [...ids]))
    .all()
  return new Map(found.map(vm => [vm.id, vm]))
}

/** VMs of a host that are not gone, oldest first. */
export function listVms(db: LedgerDb, hostId: string): Vm[] {
  return db
    .select()
    .from(vms)
    .where(and(eq(vms.hostId, hostId), ne(vms.state, 'gone')))
    .orderBy(asc(vms.createdAtMs), sql`rowid`)
    .all()
}

type VmMove = {
  readonly id: string
  readonly from: VmState
  readonly to: VmState
  readonly nowMs: number
  readonly address?: string | null
  readonly addressV6?: string | null
  readonly failureCode?: string
  readonly failureMessage?: string
  readonly platform?: Vm['platform']
}

/** Compare-and-set. False if another call moved it first; reread and decide again. */
export function moveVm(db: LedgerDb, move: VmMove): boolean {
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

/** Requests the end of a VM. Idempotent; no effect on a missing VM. */
export function dismissVm(db: LedgerDb, id: string): void {
  db.update(vms).set({ desired: 'gone' }).where(eq(vms.id, id)).run()
}

/** Makes the firewall let the VM's traffic through. Idempotent: the first time stays. False if there is no such VM. */
export function openVm(db: LedgerDb, { id, nowMs }: { id: string; nowMs: number }): boolean {
  const openedAtMs = sql`coalesce(${vms.openedAtMs}, ${nowMs})`
  return db.update(vms).set({ openedAtMs }).where(eq(vms.id, id)).returning({ id: vms.id }).all().length === 1
}

/** Makes the firewall drop all traffic of an opened VM, for good. Idempotent. False if no such VM was opened. */
export function closeVm(db: LedgerDb, { id, nowMs }: { id: string; nowMs: number }): boolean {
  const closedAtMs = sql`coalesce(${vms.closedAtMs}, ${nowMs})`
  const where = and(eq(vms.id, id), isNotNull(vms.openedAtMs))
  return db.update(vms).set({ closedAtMs }).where(where).returning({ id: vms.id }).all().length === 1
}

export type Reserved = {
  readonly vms: number
  readonly vcpus: number
  readonly memoryMib: number
  /** Sum of its disks. */
  readonly diskGib: number
  readonly booting: number
}

/** States in which a VM holds resources of the host. */
const HOLDING = ['launching', 'booting', 'running', 'stopping'] as const satisfies readonly VmState[]

/** Resources that the VMs of a host hold now. */
export function reservedBy(db: LedgerDb, hostId: string): Reserved {
  return roomOf(db, holdsRoom(hostId))
}

/** A failed VM holds resources as long as it has a row for its QEMU. */
function holdsRoom(hostId: string): SQL | undefined {
  return and(
    eq(vms.hostId, hostId),
    sql`(${inArray(vms.state, [...HOLDING])} OR (${vms.state} = 'failed' AND EXISTS
      (SELECT 1 FROM ${resources} WHERE ${resources.vmId} = ${vms.id} AND ${resources.kind} = 'qemu')))`,
  )
}

function roomOf(db: LedgerDb, where: SQL | undefined): Reserved {
  const row = db
    .select({
      vms: sql<number>`count(*)`,
      vcpus: sql<number>`coalesce(sum(${vms.vcpus}), 0)`,
      memoryMib: sql<number>`coalesce(sum(${vms.memoryMib}), 0)`,
      diskGib: sql<number>`coalesce(sum(${vms.scratchGib} + ${vms.exchangeGib}), 0)`,
      booting: sql<number>`coalesce(sum(${vms.state} IN ('launching', 'booting')), 0)`,
    })
    .from(vms)
    .where(where)
    .get()
  return row ?? { vms: 0, vcpus: 0, memoryMib: 0, diskGib: 0, booting: 0 }
}

export type Resources = Omit<Reserved, 'booting'>

/** Resources for VMs of the same host that have waited longer and so come first. */
export function waitingBefore(db: LedgerDb, vm: Pick<Vm, 'id' | 'hostId'>): Resources {
  const isBefore = sql`(${vms.createdAtMs}, ${vms}.rowid) < (SELECT created_at_ms, rowid FROM ${vms} WHERE id = ${vm.id})`
  return roomOf(db, and(eq(vms.hostId, vm.hostId), eq(vms.state, 'waiting'), eq(vms.desired, 'running'), isBefore))
}

/** Resources for all waiting VMs of a host. */
export function waitingOn(db: LedgerDb, hostId: string): Resources {
  return roomOf(db, and(eq(vms.hostId, hostId), eq(vms.state, 'waiting'), eq(vms.desired, 'running')))
}

/** Resources of a host that stopping VMs will free. */
export function endingOn(db: LedgerDb, hostId: string): Resources {
  return roomOf(db, and(holdsRoom(hostId), or(inArray(vms.state, ['stopping', 'failed']), eq(vms.desired, 'gone'))))
}

/** VMs by state; a state without any is absent. */
export function countVms(db: LedgerDb): Record<string, number> {
  const rows = db.select({ key: vms.state, count: count() }).from(vms).groupBy(vms.state).all()
  return Object.fromEntries(rows.map(row => [row.key, row.count]))
}

/** Deletes at most `limit` rows of VMs that have been gone since before a time. Returns how many. */
export function purgeGoneVms(db: LedgerDb, purge: { changedBeforeMs: number; limit: number }): number {
  const gone = db
    .select({ id: vms.id })
    .from(vms)
    .where(and(eq(vms.state, 'gone'), lt(vms.changedAtMs, purge.changedBeforeMs)))
    .limit(purge.limit)
  return db.delete(vms).where(inArray(vms.id, gone)).returning({ id: vms.id }).all().length
}
