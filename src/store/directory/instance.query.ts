// Instances and the log of their state changes. States move only by compare-and-set. Effects: SQL.

import { and, asc, count, desc, eq, gt, gte, inArray, lt, max, min, ne, or, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import { builtOnce, type DirectoryDb, prepareRaw } from '../db.ts'
import {
  type Instance,
  type InstanceChange,
  type InstanceStatus,
  instanceChanges,
  instances,
} from './instance.table.ts'

const LIVING = ['provisioning', 'ready', 'failed', 'terminating'] as const satisfies readonly InstanceStatus[]

type NewInstance = Pick<
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
> &
  Partial<Pick<Instance, 'platform' | 'egressPolicy'>> & { readonly nowMs: number }

/**
 * Adds an instance in `provisioning` with the first line of its change log. Call inside a transaction.
 * Null if the name is taken (in the organization, or as a host name); nothing was written, draw another.
 */
export function insertInstance(db: DirectoryDb, instance: NewInstance): Instance | null {
  const { nowMs, platform = null, egressPolicy = null, ...fields } = instance
  const [row] = insertNew(db).all({ ...fields, platform, egressPolicy, nowMs })
  if (row === undefined) return null
  appendChange(db, { instanceId: row.id, status: row.status, atMs: nowMs })
  return row
}

const insertNew = builtOnce((db: DirectoryDb) =>
  db
    .insert(instances)
    .values({
      id: sql.placeholder('id'),
      hostId: sql.placeholder('hostId'),
      organizationId: sql.placeholder('organizationId'),
      name: sql.placeholder('name'),
      hostname: sql.placeholder('hostname'),
      agent: sql.placeholder('agent'),
      publicKey: sql.placeholder('publicKey'),
      inferenceMode: sql.placeholder('inferenceMode'),
      inferenceModel: sql.placeholder('inferenceModel'),
      vmId: sql.placeholder('vmId'),
      platform: sql.placeholder('platform'),
      egressPolicy: sql.placeholder('egressPolicy'),
      desired: 'present',
      status: 'provisioning',
      createdAtMs: sql.placeholder('nowMs'),
      changedAtMs: sql.placeholder('nowMs'),
    })
    .onConflictDoNothing()
    .returning()
    .prepare(),
)

/** Columns that a move may set besides the status. */
export type InstanceSet = Partial<
  Pick<
    Instance,
    | 'desired'
    | 'vmId'
    | 'failureCode'
    | 'failureMessage'
    | 'terminatedReason'
    | 'readyAtMs'
    | 'terminatedAtMs'
    | 'platform'
  >
>

type InstanceMove = {
  readonly id: string
  readonly from: InstanceStatus
  readonly to: InstanceStatus
  readonly nowMs: number
} & InstanceSet

/**
 * Compare-and-set on (id, status), with a row in the change log. False if it has moved; reread and decide again. No
 * change is earlier than the one before it, which a host with another clock may have made.
 */
export function moveInstance(db: DirectoryDb, move: InstanceMove): boolean {
  const { id, from, to, nowMs, ...set } = move
  assert(from !== to, 'a move changes the status')
  assert(from !== 'terminated', 'nothing leaves terminated')
  assert(to !== 'terminated' || typeof set.terminatedAtMs === 'number', 'a terminated instance has its time')
  const later = sql`max(${instances.changedAtMs}, ${nowMs})`
  return db.transaction(tx => {
    const moved = tx
      .update(instances)
      .set({ ...set, ...(to === 'terminated' ? { terminatedAtMs: later } : {}), status: to, changedAtMs: later })
      .where(and(eq(instances.id, id), eq(instances.status, from)))
      .returning({ atMs: instances.changedAtMs })
      .all()
    const [changed] = moved
    if (changed === undefined) return false
    appendChange(tx, { instanceId: id, status: to, atMs: changed.atMs })
    return true
  })
}

function appendChange(db: DirectoryDb, change: Omit<InstanceChange, 'id'>): void {
  insertChange(db).run(change)
}

const insertChange = builtOnce((db: DirectoryDb) =>
  db
    .insert(instanceChanges)
    .values({
      instanceId: sql.placeholder('instanceId'),
      status: sql.placeholder('status'),
      atMs: sql.placeholder('atMs'),
    })
    .prepare(),
)

/** Every record of an organization, oldest first. */
export function listInstances(db: DirectoryDb, organizationId: string): Instance[] {
  return db
    .select()
    .from(instances)
    .where(eq(instances.organizationId, organizationId))
    .orderBy(asc(instances.createdAtMs), asc(instances.id))
    .all()
}

export type InstanceSearch = {
  readonly organizationId: string | null
  /** `current`: not terminated. `living`: neither failed nor terminated. */
  readonly status: InstanceStatus | 'current' | 'living' | null
  /** Letters, digits and hyphens; null means any. */
  readonly nameBegins: string | null
  readonly createdFromMs: number | null
  readonly limit: number
}

function statusesOf(status: NonNullable<InstanceSearch['status']>): InstanceStatus[] {
  if (status === 'current') return [...LIVING]
  return status === 'living' ? LIVING.filter(name => name !== 'failed') : [status]
}

/** The newest `limit` records of all organizations that fit, oldest first. */
export function searchInstances(db: DirectoryDb, search: InstanceSearch): Instance[] {
  const { organizationId, status, nameBegins, createdFromMs, limit } = search
  return db
    .select()
    .from(instances)
    .where(
      and(
        organizationId === null ? undefined : eq(instances.organizationId, organizationId),
        status === null ? undefined : inArray(instances.status, statusesOf(status)),
        // No character of a name has a meaning in GLOB.
        nameBegins === null ? undefined : sql`${instances.name} GLOB ${`${nameBegins}*`}`,
        createdFromMs === null ? undefined : gte(instances.createdAtMs, createdFromMs),
      ),
    )
    .orderBy(desc(instances.createdAtMs), desc(instances.id))
    .limit(limit)
    .all()
    .reverse()
}

export type InstanceState = Pick<Instance, 'id' | 'status' | 'platform'> & { readonly readyAtMs: number | null }

/** Ids and states in the order of `listInstances`. Prepared once, and raw, because every list needs it. */
export function prepareInstanceStates(db: DirectoryDb): (organizationId: string) => InstanceState[] {
  const select = prepareRaw<InstanceState>(
    db,
    'SELECT id, status, platform, ready_at_ms AS readyAtMs FROM instances WHERE organization_id = ? ORDER BY created_at_ms, id',
  )
  return organizationId => select.all(organizationId)
}

/** Which records an organization has, as the newest change of any record and the number of its own. */
export type RecordsMark = { readonly changeId: number; readonly count: number }

/**
 * Prepared once, and raw: it replaces the look at every record. `isSame`: no record of the organization has come,
 * changed or gone since the mark `since`, for the change log has each change.
 */
export function prepareRecordsMark(
  db: DirectoryDb,
): (organizationId: string, since: RecordsMark | null) => { readonly mark: RecordsMark; readonly isSame: boolean } {
  const newest = prepareRaw<{ id: number | null }>(db, 'SELECT max(id) AS id FROM instance_changes')
  const counted = prepareRaw<{ count: number }>(db, 'SELECT count(*) AS count FROM instances WHERE organization_id = ?')
  // CROSS JOIN keeps this order: by the newest changes, not by all records of the organization (sqlite.org, optimizer).
  const changed = prepareRaw<{ id: number }>(
    db,
    `SELECT c.id FROM instance_changes c CROSS JOIN instances i ON i.id = c.instance_id
     WHERE c.id > ? AND i.organization_id = ? LIMIT 1`,
  )
  return (organizationId, since) => {
    const count = counted.get(organizationId)?.count ?? 0
    // The newest change goes with its record; numbers are never given twice.
    const changeId = Math.max(newest.get()?.id ?? 0, since?.changeId ?? 0)
    const isSame = since !== null && since.count === count && changed.get(since.changeId, organizationId) === null
    return { mark: { changeId, count }, isSame }
  }
}

/** Returns the names of an organization's instances by id, those of terminated ones included. */
export function instanceNames(db: DirectoryDb, organizationId: string): ReadonlyMap<string, string> {
  const named = db.select({ id: instances.id, name: instances.name }).from(instances)
  const rows = named.where(eq(instances.organizationId, organizationId)).all()
  return new Map(rows.map(({ id, name }) => [id, name]))
}

export function findInstance(db: DirectoryDb, key: { organizationId: string; name: string }): Instance | null {
  const found = db
    .select()
    .from(instances)
    .where(and(eq(instances.organizationId, key.organizationId), eq(instances.name, key.name)))
    .get()
  return found ?? null
}

export function instanceById(db: DirectoryDb, id: string): Instance | null {
  return selectById(db).get({ id }) ?? null
}

const selectById = builtOnce((db: DirectoryDb) =>
  db
    .select()
    .from(instances)
    .where(eq(instances.id, sql.placeholder('id')))
    .prepare(),
)

/** The existing instances among `ids`, in any order. The caller bounds their number. */
export function instancesByIds(db: DirectoryDb, ids: readonly string[]): Instance[] {
  if (ids.length === 0) return []
  return db
    .select()
    .from(instances)
    .where(inArray(instances.id, [...ids]))
    .all()
}

/** Null for a VM that backs no instance, such as one that is gone. */
export function instanceByVm(db: DirectoryDb, vmId: string): Instance | null {
  return selectByVm(db).get({ vmId }) ?? null
}

const selectByVm = builtOnce((db: DirectoryDb) =>
  db
    .select()
    .from(instances)
    .where(eq(instances.vmId, sql.placeholder('vmId')))
    .prepare(),
)

/** Like `instanceByVm`, for several VMs. The caller bounds their number. */
export function instancesByVms(db: DirectoryDb, vmIds: readonly string[]): Map<string, Instance> {
  const found = db
    .select()
    .from(instances)
    .where(inArray(instances.vmId, [...vmIds]))
    .all()
  return new Map(found.flatMap(instance => (instance.vmId === null ? [] : [[instance.vmId, instance]])))
}

/** Every instance of a host that is not terminated, of all organizations, oldest first; null for all hosts. */
export function listLiving(db: DirectoryDb, hostId: string | null): Instance[] {
  return db
    .select()
    .from(instances)
    .where(and(inArray(instances.status, [...LIVING]), hostId === null ? undefined : eq(instances.hostId, hostId)))
    .orderBy(asc(instances.createdAtMs), asc(instances.id))
    .all()
}

/** An organization's instances of a host that are being provisioned, oldest first. */
export function listProvisioning(
  db: DirectoryDb,
  of: { hostId: string; organizationId: string },
): Pick<Instance, 'id' | 'vmId'>[] {
  const { hostId, organizationId } = of
  return db
    .select({ id: instances.id, vmId: instances.vmId })
    .from(instances)
    .where(
      and(
        eq(instances.organizationId, organizationId),
        eq(instances.status, 'provisioning'),
        eq(instances.hostId, hostId),
      ),
    )
    .orderBy(asc(instances.createdAtMs), asc(instances.id))
    .all()
}

type InstanceEgress = Pick<Instance, 'id' | 'egressBytes' | 'egressObservedAtMs' | 'egressBlockAppliedAtMs'>

/** Copies samples of VM egress into instances; neither status nor change log moves. The caller bounds their number. */
export function setInstanceEgress(db: DirectoryDb, samples: readonly InstanceEgress[]): void {
  const rows = samples.map(({ id, egressBytes, egressObservedAtMs, egressBlockAppliedAtMs }) => {
    assert(Number.isSafeInteger(egressBytes) && egressBytes >= 0, 'egress is a count of bytes')
    return [id, egressBytes, egressObservedAtMs, egressBlockAppliedAtMs]
  })
  // One statement for all: a statement per row took 0.25 s for 1,000.
  db.run(sql`
    UPDATE instances SET
      egress_bytes = sample.value ->> 1,
      egress_observed_at_ms = sample.value ->> 2,
      egress_block_applied_at_ms = sample.value ->> 3
    FROM json_each(${JSON.stringify(rows)}) AS sample
    WHERE instances.id = sample.value ->> 0`)
}

/** Instances by status; a status without any is absent. */
export function countInstances(db: DirectoryDb): Record<string, number> {
  const rows = db.select({ key: instances.status, count: count() }).from(instances).groupBy(instances.status).all()
  return Object.fromEntries(rows.map(row => [row.key, row.count]))
}

/** By host: instances that have a VM or will get one. */
export function placesTaken(db: DirectoryDb): Map<string, number> {
  const rows = db
    .select({ hostId: instances.hostId, taken: count() })
    .from(instances)
    .where(inArray(instances.status, ['provisioning', 'ready', 'terminating']))
    // In the order of the index.
    .groupBy(instances.status, instances.hostId)
    .all()
  const sums = new Map<string, number>()
  for (const { hostId, taken } of rows) sums.set(hostId, (sums.get(hostId) ?? 0) + taken)
  return sums
}

/** Sums over the instances that are not terminated. */
export type EgressTotals = {
  readonly bytes: number
  readonly observedAtMs: number | null
  /** The oldest block of an instance that has not failed: a failed one has no VM to block. */
  readonly blockedAtMs: number | null
}

export function egressTotals(db: DirectoryDb, organizationId: string): EgressTotals {
  return (
    db
      .select({
        bytes: sql<number>`coalesce(sum(${instances.egressBytes}), 0)`,
        observedAtMs: max(instances.egressObservedAtMs),
        blockedAtMs: sql<
          number | null
        >`min(${instances.egressBlockAppliedAtMs}) FILTER (WHERE ${ne(instances.status, 'failed')})`,
      })
      .from(instances)
      .where(and(eq(instances.organizationId, organizationId), ne(instances.status, 'terminated')))
      .get() ?? { bytes: 0, observedAtMs: null, blockedAtMs: null }
  )
}

/**
 * Returns when the `nth` newest instance of an organization was created, if that was after `sinceMs`; otherwise null.
 */
export function nthNewestCreation(
  db: DirectoryDb,
  wanted: { organizationId: string; nth: number; sinceMs: number },
): number | null {
  const { organizationId, nth, sinceMs } = wanted
  return selectNthNewest(db).get({ organizationId, sinceMs, before: nth - 1 })?.atMs ?? null
}

const selectNthNewest = builtOnce((db: DirectoryDb) =>
  db
    .select({ atMs: instances.createdAtMs })
    .from(instances)
    .where(
      and(
        eq(instances.organizationId, sql.placeholder('organizationId')),
        gt(instances.createdAtMs, sql.placeholder('sinceMs')),
      ),
    )
    .orderBy(desc(instances.createdAtMs))
    .limit(1)
    .offset(sql.placeholder('before'))
    .prepare(),
)

/** When the first of an organization's terminated records ended; null if there is none. Looks at every record. */
export function earliestTermination(db: DirectoryDb, organizationId: string): number | null {
  const [found] = db
    .select({ atMs: min(instances.terminatedAtMs) })
    .from(instances)
    .where(eq(instances.organizationId, organizationId))
    .all()
  return found?.atMs ?? null
}

/**
 * The whole change logs, in the order written, of those instances of an organization that are ready now or have changed
 * at or after `fromMs`: enough to find every ready interval that reaches past `fromMs`.
 */
export function listChangesOverlapping(
  db: DirectoryDb,
  window: { organizationId: string; fromMs: number },
): InstanceChange[] {
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
export function deleteExpired(db: DirectoryDb, expired: { terminatedBeforeMs: number; limit: number }): number {
  const ids = db
    .select({ id: instances.id })
    .from(instances)
    .where(and(eq(instances.status, 'terminated'), lt(instances.terminatedAtMs, expired.terminatedBeforeMs)))
    .limit(expired.limit)
  return db.delete(instances).where(inArray(instances.id, ids)).returning({ id: instances.id }).all().length
}
