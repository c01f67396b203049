// Instances and the log of their state changes. States move only by compare-and-set. Effects: SQL.

import { and, asc, count, eq, gte, inArray, lt, ne, or } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { Db } from '../db.ts'
import {
  type Instance,
  type InstanceChange,
  type InstanceStatus,
  instanceChanges,
  instances,
} from './instance.table.ts'

const LIVE = ['provisioning', 'ready', 'failed', 'terminating'] as const satisfies readonly InstanceStatus[]

export type NewInstance = Pick<
  Instance,
  | 'id'
  | 'hostId'
  | 'organizationId'
  | 'name'
  | 'hostname'
  | 'agent'
  | 'publicKey'
  | 'inferenceMode'
  | 'inferenceModel'
  | 'vmId'
> & { readonly nowMs: number }

/**
 * Adds an instance in `provisioning` with the first line of its change log. Call inside a transaction.
 * Null: the name is taken (in the organization, or as a host name); nothing was written, draw another.
 */
export function insertInstance(db: Db, instance: NewInstance): Instance | null {
  const { nowMs, ...fields } = instance
  const [row] = db
    .insert(instances)
    .values({ ...fields, desired: 'present', status: 'provisioning', createdAtMs: nowMs, changedAtMs: nowMs })
    .onConflictDoNothing()
    .returning()
    .all()
  if (row === undefined) return null
  appendChange(db, { instanceId: row.id, status: row.status, atMs: nowMs })
  return row
}

/** Columns that a move may set besides the status. */
export type InstanceSet = Partial<
  Pick<
    Instance,
    'desired' | 'vmId' | 'failureCode' | 'failureMessage' | 'terminatedReason' | 'readyAtMs' | 'terminatedAtMs'
  >
>

export type InstanceMove = {
  readonly id: string
  readonly from: InstanceStatus
  readonly to: InstanceStatus
  readonly nowMs: number
} & InstanceSet

/** Compare-and-set on (id, status), with a line in the change log. False: someone moved it first; reread and decide again. */
export function moveInstance(db: Db, move: InstanceMove): boolean {
  const { id, from, to, nowMs, ...set } = move
  assert(from !== to, 'a move changes the status')
  assert(from !== 'terminated', 'nothing leaves terminated')
  assert(to !== 'terminated' || typeof set.terminatedAtMs === 'number', 'a terminated instance has its time')
  return db.transaction(tx => {
    const moved = tx
      .update(instances)
      .set({ ...set, status: to, changedAtMs: nowMs })
      .where(and(eq(instances.id, id), eq(instances.status, from)))
      .returning({ id: instances.id })
      .all()
    if (moved.length !== 1) return false
    appendChange(tx, { instanceId: id, status: to, atMs: nowMs })
    return true
  })
}

function appendChange(db: Db, change: Omit<InstanceChange, 'id'>): void {
  db.insert(instanceChanges).values(change).run()
}

/** Every record of an organization, oldest first. */
export function listInstances(db: Db, organizationId: string): Instance[] {
  return db
    .select()
    .from(instances)
    .where(eq(instances.organizationId, organizationId))
    .orderBy(asc(instances.createdAtMs), asc(instances.id))
    .all()
}

export function findInstance(db: Db, key: { organizationId: string; name: string }): Instance | null {
  const found = db
    .select()
    .from(instances)
    .where(and(eq(instances.organizationId, key.organizationId), eq(instances.name, key.name)))
    .get()
  return found ?? null
}

export function instanceById(db: Db, id: string): Instance | null {
  return db.select().from(instances).where(eq(instances.id, id)).get() ?? null
}

/** Normally one; an empty list for a VM that backs nothing (a pool's, or an instance that has let go of it). */
export function instancesByVm(db: Db, vmId: string): Instance[] {
  return db.select().from(instances).where(eq(instances.vmId, vmId)).all()
}

/** Everything not terminated, of all organizations, oldest first. */
export function listLive(db: Db): Instance[] {
  return db
    .select()
    .from(instances)
    .where(inArray(instances.status, [...LIVE]))
    .orderBy(asc(instances.createdAtMs), asc(instances.id))
    .all()
}

/** Names the VM that backs an instance, or null once its row is to be purged. */
export function setVm(db: Db, change: { id: string; vmId: string | null }): void {
  db.update(instances).set({ vmId: change.vmId }).where(eq(instances.id, change.id)).run()
}

export type EgressSample = {
  readonly id: string
  readonly egressBytes: number
  readonly observedAtMs: number
  /** When egress was blocked; null while it flows. */
  readonly blockAppliedAtMs: number | null
}

export function setEgress(db: Db, sample: EgressSample): void {
  assert(Number.isSafeInteger(sample.egressBytes) && sample.egressBytes >= 0, 'egress is a count of bytes')
  db.update(instances)
    .set({
      egressBytes: sample.egressBytes,
      egressObservedAtMs: sample.observedAtMs,
      egressBlockAppliedAtMs: sample.blockAppliedAtMs,
    })
    .where(eq(instances.id, sample.id))
    .run()
}

/** Records that count against an organization's limit: all but the terminated. */
export function countLiving(db: Db, organizationId: string): number {
  const row = db
    .select({ living: count() })
    .from(instances)
    .where(and(eq(instances.organizationId, organizationId), ne(instances.status, 'terminated')))
    .get()
  return row?.living ?? 0
}

/**
 * The whole change logs, in the order written, of those instances of an organization that are ready now or have changed
 * at or after `fromMs`: enough to find every ready interval that reaches past `fromMs`.
 */
export function listChangesOverlapping(db: Db, window: { organizationId: string; fromMs: number }): InstanceChange[] {
  return db
    .select({
      id: instanceChanges.id,
      instanceId: instanceChanges.instanceId,
      status: instanceChanges.status,
      atMs: instanceChanges.atMs,
    })
    .from(instanceChanges)
    .innerJoin(instances, eq(instances.id, instanceChanges.instanceId))
    .where(
      and(
        eq(instances.organizationId, window.organizationId),
        or(eq(instances.status, 'ready'), gte(instances.changedAtMs, window.fromMs)),
      ),
    )
    .orderBy(asc(instanceChanges.id))
    .all()
}

/** Removes at most `limit` records terminated before a time, their change logs with them. Returns how many. */
export function deleteExpired(db: Db, expired: { terminatedBeforeMs: number; limit: number }): number {
  const ids = db
    .select({ id: instances.id })
    .from(instances)
    .where(and(eq(instances.status, 'terminated'), lt(instances.terminatedAtMs, expired.terminatedBeforeMs)))
    .limit(expired.limit)
  return db.delete(instances).where(inArray(instances.id, ids)).returning({ id: instances.id }).all().length
}
