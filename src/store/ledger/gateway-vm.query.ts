// VMs of the gateway in the store. Effects: SQL.

import { and, desc, eq, inArray, lt, ne } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type GatewayVm, type GatewayVmState, gatewayVms } from './gateway-vm.table.ts'

export function insertGatewayVm(
  db: LedgerDb,
  gatewayVm: { vmId: string; hostId: string; shape: string; nowMs: number },
): void {
  const { nowMs, ...row } = gatewayVm
  db.insert(gatewayVms)
    .values({ ...row, state: 'starting', createdAtMs: nowMs, changedAtMs: nowMs })
    .run()
}

/** Gateway VMs that are not gone, oldest first. */
export function listGatewayVms(db: LedgerDb, hostId: string): GatewayVm[] {
  return db
    .select()
    .from(gatewayVms)
    .where(and(eq(gatewayVms.hostId, hostId), ne(gatewayVms.state, 'gone')))
    .orderBy(gatewayVms.createdAtMs, gatewayVms.vmId)
    .all()
}

/** The newest gateway VMs that are gone. */
export function listGoneGatewayVms(db: LedgerDb, hostId: string, limit: number): GatewayVm[] {
  return db
    .select()
    .from(gatewayVms)
    .where(and(eq(gatewayVms.hostId, hostId), eq(gatewayVms.state, 'gone')))
    .orderBy(desc(gatewayVms.changedAtMs), gatewayVms.vmId)
    .limit(limit)
    .all()
}

export function findGatewayVm(db: LedgerDb, vmId: string): GatewayVm | null {
  return db.select().from(gatewayVms).where(eq(gatewayVms.vmId, vmId)).get() ?? null
}

type GatewayVmMove = {
  readonly vmId: string
  readonly from: readonly GatewayVmState[]
  readonly to: GatewayVmState
  readonly reason?: string
  readonly nowMs: number
}

/** False if it was in none of the states `from`; nothing changed. */
export function moveGatewayVm(db: LedgerDb, { vmId, from, to, reason, nowMs }: GatewayVmMove): boolean {
  return (
    db
      .update(gatewayVms)
      .set({ state: to, changedAtMs: nowMs, ...(reason === undefined ? {} : { reason }) })
      .where(and(eq(gatewayVms.vmId, vmId), inArray(gatewayVms.state, [...from])))
      .returning({ vmId: gatewayVms.vmId })
      .all().length === 1
  )
}

/** Stores the verified key that signs its usage. */
export function setReceiptKey(db: LedgerDb, vmId: string, receiptKey: string): void {
  db.update(gatewayVms).set({ receiptKey }).where(eq(gatewayVms.vmId, vmId)).run()
}

/** Compare-and-set of the number of booked rows, from `from`. False if it has another value. */
export function advanceBooks(
  db: LedgerDb,
  { vmId, from, to, digest }: { vmId: string; from: number; to: number; digest: string },
): boolean {
  return (
    db
      .update(gatewayVms)
      .set({ booked: to, bookedDigest: digest })
      .where(and(eq(gatewayVms.vmId, vmId), eq(gatewayVms.booked, from)))
      .returning({ vmId: gatewayVms.vmId })
      .all().length === 1
  )
}

/** Deletes rows of VMs that have been gone since before a time. */
export function purgeGatewayVms(db: LedgerDb, goneBeforeMs: number): void {
  db.delete(gatewayVms)
    .where(and(eq(gatewayVms.state, 'gone'), lt(gatewayVms.changedAtMs, goneBeforeMs)))
    .run()
}
