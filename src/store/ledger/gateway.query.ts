// VMs of the gateway in the store. Effects: SQL.

import { and, desc, eq, inArray, lt, ne } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type GatewayState, type GatewayVm, gateways } from './gateway.table.ts'

export function insertGateway(
  db: LedgerDb,
  gateway: { vmId: string; hostId: string; shape: string; nowMs: number },
): void {
  const { nowMs, ...row } = gateway
  db.insert(gateways)
    .values({ ...row, state: 'starting', createdAtMs: nowMs, changedAtMs: nowMs })
    .run()
}

/** Gateway VMs that are not gone, oldest first. */
export function listGateways(db: LedgerDb, hostId: string): GatewayVm[] {
  return db
    .select()
    .from(gateways)
    .where(and(eq(gateways.hostId, hostId), ne(gateways.state, 'gone')))
    .orderBy(gateways.createdAtMs, gateways.vmId)
    .all()
}

/** The newest gateway VMs that are gone. */
export function listGoneGateways(db: LedgerDb, hostId: string, limit: number): GatewayVm[] {
  return db
    .select()
    .from(gateways)
    .where(and(eq(gateways.hostId, hostId), eq(gateways.state, 'gone')))
    .orderBy(desc(gateways.changedAtMs), gateways.vmId)
    .limit(limit)
    .all()
}

export function gatewayById(db: LedgerDb, vmId: string): GatewayVm | null {
  return db.select().from(gateways).where(eq(gateways.vmId, vmId)).get() ?? null
}

type GatewayMove = {
  readonly vmId: string
  readonly from: readonly GatewayState[]
  readonly to: GatewayState
  readonly reason?: string
  readonly nowMs: number
}

/** False if it was in none of the states `from`; nothing changed. */
export function moveGateway(db: LedgerDb, { vmId, from, to, reason, nowMs }: GatewayMove): boolean {
  return (
    db
      .update(gateways)
      .set({ state: to, changedAtMs: nowMs, ...(reason === undefined ? {} : { reason }) })
      .where(and(eq(gateways.vmId, vmId), inArray(gateways.state, [...from])))
      .returning({ vmId: gateways.vmId })
      .all().length === 1
  )
}

/** Stores the verified key that signs its usage. */
export function setReceiptKey(db: LedgerDb, vmId: string, receiptKey: string): void {
  db.update(gateways).set({ receiptKey }).where(eq(gateways.vmId, vmId)).run()
}

/** Compare-and-set of the number of booked rows, from `from`. False if it has another value. */
export function advanceBooks(
  db: LedgerDb,
  { vmId, from, to, digest }: { vmId: string; from: number; to: number; digest: string },
): boolean {
  return (
    db
      .update(gateways)
      .set({ booked: to, bookedDigest: digest })
      .where(and(eq(gateways.vmId, vmId), eq(gateways.booked, from)))
      .returning({ vmId: gateways.vmId })
      .all().length === 1
  )
}

/** Deletes rows of VMs that have been gone since before a time. */
export function purgeGateways(db: LedgerDb, goneBeforeMs: number): void {
  db.delete(gateways)
    .where(and(eq(gateways.state, 'gone'), lt(gateways.changedAtMs, goneBeforeMs)))
    .run()
}
