// Attested builds, their nonces, and build VMs without a build. States move only by compare-and-set. Effects: SQL.

import { and, asc, count, desc, eq, gte, inArray, isNotNull, isNull, lt, ne, or, type SQL, sql, sum } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { DirectoryDb } from '../db.ts'
import {
  type Build,
  type BuildReservation,
  type BuildVm,
  buildNonces,
  buildReservations,
  builds,
  buildVms,
} from './build.table.ts'

type BuildState = Build['state']

/** States in which a build has a VM or will get one. */
export const LIVING_STATES = ['queued', 'starting', 'running'] as const satisfies readonly BuildState[]
export const VM_STATES = ['starting', 'running'] as const satisfies readonly BuildState[]

type NewBuild = Pick<
  Build,
  | 'id'
  | 'hostId'
  | 'organizationId'
  | 'nonce'
  | 'sourceKind'
  | 'sourceName'
  | 'sourceBytes'
  | 'sourceSha256'
  | 'repoUrl'
  | 'repoRef'
  | 'projectDir'
  | 'toolchain'
  | 'reproduce'
  | 'fetchCaSha256'
  | 'cratesMirror'
  | 'options'
  | 'waivers'
  | 'vmId'
  | 'diskBytes'
> & { readonly nowMs: number }

/**
 * Adds a build (`starting` with a VM, otherwise `queued`) and its nonce in a transaction. False if the nonce is used.
 */
export function insertBuild(db: DirectoryDb, { nowMs, ...build }: NewBuild): boolean {
  const owner = build.organizationId ?? ''
  const used = db
    .select({ nonce: buildNonces.nonce })
    .from(buildNonces)
    .where(and(eq(buildNonces.owner, owner), eq(buildNonces.nonce, build.nonce)))
    .get()
  if (used !== undefined) return false
  const hasVm = build.vmId !== null
  db.insert(builds)
    .values({
      ...build,
      state: hasVm ? 'starting' : 'queued',
      network: 'unused',
      createdAtMs: nowMs,
      startedAtMs: hasVm ? nowMs : null,
    })
    .run()
  db.insert(buildNonces).values({ owner, nonce: build.nonce, buildId: build.id }).run()
  return true
}

export function isNonceUsed(db: DirectoryDb, used: { organizationId: string | null; nonce: string }): boolean {
  const where = and(eq(buildNonces.owner, used.organizationId ?? ''), eq(buildNonces.nonce, used.nonce))
  return db.select({ nonce: buildNonces.nonce }).from(buildNonces).where(where).get() !== undefined
}

export function buildById(db: DirectoryDb, id: string): Build | null {
  return db.select().from(builds).where(eq(builds.id, id)).get() ?? null
}

export function buildByVm(db: DirectoryDb, vmId: string): Build | null {
  return db.select().from(builds).where(eq(builds.vmId, vmId)).get() ?? null
}

/** Builds of a host with a VM or unfinished events, oldest first. */
export function listOpenBuilds(db: DirectoryDb, hostId: string): Build[] {
  return db
    .select()
    .from(builds)
    .where(and(eq(builds.hostId, hostId), isNull(builds.closedAtMs)))
    .orderBy(asc(builds.createdAtMs), sql`rowid`)
    .all()
}

/** Newest first; of all organizations if none is named. */
export function listBuilds(db: DirectoryDb, of: { organizationId?: string; limit: number }): Build[] {
  const where = of.organizationId === undefined ? undefined : eq(builds.organizationId, of.organizationId)
  return db.select().from(builds).where(where).orderBy(desc(builds.createdAtMs), sql`rowid DESC`).limit(of.limit).all()
}

export type QueuedBuild = Pick<Build, 'id' | 'hostId' | 'organizationId' | 'sourceKind' | 'createdAtMs'>

/** Builds of all hosts that wait for a VM, oldest first: in the same order on every host. */
export function listQueued(db: DirectoryDb): QueuedBuild[] {
  const { id, hostId, organizationId, sourceKind, createdAtMs } = builds
  return db
    .select({ id, hostId, organizationId, sourceKind, createdAtMs })
    .from(builds)
    .where(eq(builds.state, 'queued'))
    .orderBy(asc(builds.createdAtMs), asc(builds.id))
    .all()
}

/** Columns that a move may set besides the state. */
export type BuildSet = Partial<
  Pick<
    Build,
    | 'vmId'
    | 'network'
    | 'evidence'
    | 'simulated'
    | 'measurement'
    | 'resultBytes'
    | 'resultSha256'
    | 'provenanceSha256'
    | 'errorType'
    | 'error'
    | 'diskBytes'
    | 'startedAtMs'
    | 'orderedAtMs'
    | 'finishedAtMs'
    | 'sourceHostId'
  >
>

type BuildMove = { readonly id: string; readonly from: BuildState; readonly to: BuildState } & BuildSet

type BuildHand = BuildMove & Pick<Build, 'hostId'>

/** Like `moveBuild`, but the build also changes its host: to another one, or back to this one. */
export function handBuild(db: DirectoryDb, { id, from, to, ...set }: BuildHand): boolean {
  assert(from !== to && LIVING_STATES.some(state => state === to), 'only builds that go on change hands')
  const claims = sql`${builds.claims} + 1`
  const rows = db
    .update(builds)
    .set({ ...set, state: to, claims })
    .where(and(eq(builds.id, id), eq(builds.state, from)))
    .returning({ id: builds.id })
    .all()
  return rows.length === 1
}

/** Compare-and-set on (id, state). False if another call moved it first; reread and decide again. */
export function moveBuild(db: DirectoryDb, { id, from, to, ...set }: BuildMove): boolean {
  const isEnd = to === 'ok' || to === 'failed' || to === 'cancelled'
  assert(from !== to && from !== 'ok' && from !== 'failed' && from !== 'cancelled', 'nothing leaves an end')
  assert(!isEnd || typeof set.finishedAtMs === 'number', 'a build that has ended has its time')
  assert(to !== 'ok' || (typeof set.resultSha256 === 'string' && !set.error), 'a good build has its result')
  assert(to !== 'failed' || typeof set.errorType === 'string', 'a failed build has its error type')
  return updated(db, { ...set, state: to }, and(eq(builds.id, id), eq(builds.state, from)))
}

/** Sets columns of a build that is still in this state. Returns false if it is not. */
export function setBuild(
  db: DirectoryDb,
  { id, state, ...set }: { id: string; state: BuildState } & BuildSet,
): boolean {
  return updated(db, set, and(eq(builds.id, id), eq(builds.state, state)))
}

/** Closes a build, with the disk space of its files. */
export function closeBuild(db: DirectoryDb, closed: { id: string; diskBytes: number; nowMs: number }): void {
  updated(db, { closedAtMs: closed.nowMs, diskBytes: closed.diskBytes }, eq(builds.id, closed.id))
}

function updated(db: DirectoryDb, set: Partial<Build>, where: SQL | undefined): boolean {
  return db.update(builds).set(set).where(where).returning({ id: builds.id }).all().length === 1
}

export function countBuilds(
  db: DirectoryDb,
  of: { hostId?: string; organizationId?: string | null; states: readonly BuildState[] },
): number {
  const { hostId, organizationId, states } = of
  const where = and(
    inArray(builds.state, [...states]),
    hostId === undefined ? undefined : eq(builds.hostId, hostId),
    organizationId === undefined ? undefined : ownedBy(builds.organizationId, organizationId),
  )
  return db.select({ n: count() }).from(builds).where(where).get()?.n ?? 0
}

/** By host; one without such builds is absent. */
export function countBuildsByHost(db: DirectoryDb, states: readonly BuildState[]): ReadonlyMap<string, number> {
  const counted = db.select({ hostId: builds.hostId, n: count() }).from(builds)
  const rows = counted
    .where(inArray(builds.state, [...states]))
    .groupBy(builds.hostId)
    .all()
  return new Map(rows.map(({ hostId, n }) => [hostId, n]))
}

function ownedBy(
  column: typeof builds.organizationId | typeof buildVms.organizationId | typeof buildReservations.organizationId,
  id: string | null,
) {
  return id === null ? isNull(column) : eq(column, id)
}

/** VMs of each organization on all hosts, reserved ones included; null means builds without an organization. */
export function countVmsByOwner(db: DirectoryDb): ReadonlyMap<string | null, number> {
  const building = db
    .select({ owner: builds.organizationId, n: count() })
    .from(builds)
    .where(inArray(builds.state, [...VM_STATES]))
    .groupBy(builds.organizationId)
    .all()
  const reserved = db
    .select({ owner: buildReservations.organizationId, n: count() })
    .from(buildReservations)
    .groupBy(buildReservations.organizationId)
    .all()
  const counts = new Map<string | null, number>()
  for (const { owner, n } of [...building, ...reserved]) counts.set(owner, (counts.get(owner) ?? 0) + n)
  return counts
}

/** Start of the owner's newest started build, or null. */
export function lastStartedMs(db: DirectoryDb, organizationId: string | null): number | null {
  const found = db
    .select({ atMs: builds.startedAtMs })
    .from(builds)
    .where(and(ownedBy(builds.organizationId, organizationId), isNotNull(builds.startedAtMs)))
    .orderBy(desc(builds.createdAtMs))
    .limit(1)
    .get()
  return found?.atMs ?? null
}

/** Builds of a host; a state without builds is absent. */
export function countBuildsByState(db: DirectoryDb, hostId: string): Partial<Record<BuildState, number>> {
  const counted = db.select({ state: builds.state, n: count() }).from(builds)
  const rows = counted.where(eq(builds.hostId, hostId)).groupBy(builds.state).all()
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]))
}

/** Creation time of the owner's nth newest build since a time; null if there are fewer. */
export function nthNewestBuild(
  db: DirectoryDb,
  of: { organizationId: string | null; nth: number; sinceMs: number },
): number | null {
  const found = db
    .select({ atMs: builds.createdAtMs })
    .from(builds)
    .where(and(ownedBy(builds.organizationId, of.organizationId), gte(builds.createdAtMs, of.sinceMs)))
    .orderBy(desc(builds.createdAtMs))
    .offset(of.nth - 1)
    .limit(1)
    .get()
  return found?.atMs ?? null
}

/** Disk space of the files of a host's builds. */
export function buildDiskBytes(db: DirectoryDb, hostId: string): number {
  const row = db
    .select({ bytes: sum(builds.diskBytes).mapWith(Number) })
    .from(builds)
    .where(eq(builds.hostId, hostId))
    .get()
  return row?.bytes ?? 0
}

/** The oldest finished build of the owner whose finished builds have most bytes on disk, or null. */
export function oldestOfLargestOwner(db: DirectoryDb, hostId: string): Build | null {
  const where = and(eq(builds.hostId, hostId), isNotNull(builds.closedAtMs), isNull(builds.removedAtMs))
  const largest = db
    .select({ owner: builds.organizationId })
    .from(builds)
    .where(where)
    .groupBy(builds.organizationId)
    .orderBy(desc(sum(builds.diskBytes)))
    .limit(1)
    .get()
  if (largest === undefined) return null
  const own = and(where, ownedBy(builds.organizationId, largest.owner))
  return db.select().from(builds).where(own).orderBy(asc(builds.finishedAtMs), sql`rowid`).limit(1).get() ?? null
}

/** Records that its files are deleted; the record stays. */
export function noteRemoved(db: DirectoryDb, { id, nowMs }: { id: string; nowMs: number }): void {
  updated(db, { removedAtMs: nowMs, diskBytes: 0 }, eq(builds.id, id))
}

/** Builds closed before a time, at most `limit`. */
export function listExpiredBuilds(
  db: DirectoryDb,
  expired: { hostId: string; finishedBeforeMs: number; limit: number },
): string[] {
  const where = and(
    eq(builds.hostId, expired.hostId),
    isNotNull(builds.closedAtMs),
    lt(builds.finishedAtMs, expired.finishedBeforeMs),
  )
  return db
    .select({ id: builds.id })
    .from(builds)
    .where(where)
    .limit(expired.limit)
    .all()
    .map(({ id }) => id)
}

/** With its nonce. */
export function deleteBuild(db: DirectoryDb, id: string): void {
  db.delete(builds).where(eq(builds.id, id)).run()
}

/** Ids of all builds that a host has files of: its own, and those whose source another host has still to fetch. */
export function listBuildIds(db: DirectoryDb, hostId: string): ReadonlySet<string> {
  const where = or(eq(builds.hostId, hostId), and(eq(builds.sourceHostId, hostId), isNull(builds.closedAtMs)))
  const rows = db.select({ id: builds.id }).from(builds).where(where).all()
  return new Set(rows.map(({ id }) => id))
}

/** Hosts that builds on record name. */
export function listBuildHosts(db: DirectoryDb): string[] {
  return db
    .selectDistinct({ hostId: builds.hostId })
    .from(builds)
    .all()
    .map(({ hostId }) => hostId)
}

export function insertBuildVm(
  db: DirectoryDb,
  { nowMs, ...vm }: Omit<BuildVm, 'createdAtMs'> & { nowMs: number },
): void {
  db.insert(buildVms)
    .values({ ...vm, createdAtMs: nowMs })
    .run()
}

/** VMs of a host that no build has taken, oldest first. */
export function listBuildVms(db: DirectoryDb, hostId: string): BuildVm[] {
  return db
    .select()
    .from(buildVms)
    .where(eq(buildVms.hostId, hostId))
    .orderBy(asc(buildVms.createdAtMs), sql`rowid`)
    .all()
}

export function buildVmById(db: DirectoryDb, vmId: string): BuildVm | null {
  return db.select().from(buildVms).where(eq(buildVms.vmId, vmId)).get() ?? null
}

export function countReserved(db: DirectoryDb, of: { hostId: string; organizationId?: string | null }): number {
  const where = and(
    eq(buildVms.hostId, of.hostId),
    eq(buildVms.kind, 'reserved'),
    of.organizationId === undefined ? undefined : ownedBy(buildVms.organizationId, of.organizationId),
  )
  return db.select({ n: count() }).from(buildVms).where(where).get()?.n ?? 0
}

/** Has other hosts know of a reserved VM, until its row in `build_vms` goes (a trigger). No effect where they do. */
export function insertReservation(db: DirectoryDb, reservation: BuildReservation): void {
  db.insert(buildReservations).values(reservation).onConflictDoNothing().run()
}

export function reservationOf(db: DirectoryDb, vmId: string): BuildReservation | null {
  return db.select().from(buildReservations).where(eq(buildReservations.vmId, vmId)).get() ?? null
}

/** Reserved VMs of an organization on all hosts. */
export function countReservations(db: DirectoryDb, of: { organizationId: string | null }): number {
  const where = ownedBy(buildReservations.organizationId, of.organizationId)
  return db.select({ n: count() }).from(buildReservations).where(where).get()?.n ?? 0
}

/** Compare-and-set: true for exactly one caller, who decides what becomes of the VM. */
export function removeBuildVm(db: DirectoryDb, vmId: string): boolean {
  return db.delete(buildVms).where(eq(buildVms.vmId, vmId)).returning({ vmId: buildVms.vmId }).all().length === 1
}

/** Gives a warm VM to an organization. False if another call was faster. */
export function reserveBuildVm(
  db: DirectoryDb,
  vm: { vmId: string; organizationId: string | null; expiresAtMs: number },
): boolean {
  const { vmId, ...set } = vm
  return (
    db
      .update(buildVms)
      .set({ ...set, kind: 'reserved' })
      .where(and(eq(buildVms.vmId, vmId), ne(buildVms.kind, 'reserved')))
      .returning({ vmId: buildVms.vmId })
      .all().length === 1
  )
}

/** VMs of a host that a build or a build VM's row names. */
export function namedBuildVms(db: DirectoryDb, hostId: string): ReadonlySet<string> {
  const ofBuilds = db
    .select({ vmId: builds.vmId })
    .from(builds)
    .where(and(eq(builds.hostId, hostId), isNull(builds.closedAtMs), isNotNull(builds.vmId)))
    .all()
  return new Set([...ofBuilds, ...listBuildVms(db, hostId)].flatMap(({ vmId }) => vmId ?? []))
}
