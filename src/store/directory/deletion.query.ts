// Deletion of an organization in the store: its acceptance, what is left to end, its end. Effects: SQL.

import { and, asc, count, eq, inArray, isNotNull, isNull, ne, notInArray, or, sql, sum } from 'drizzle-orm'
import type { DirectoryDb } from '../db.ts'
import { LIVING_STATES } from './build.query.ts'
import { buildReservations, builds } from './build.table.ts'
import { gatewayKeys } from './gateway-key.table.ts'
import { idempotency } from './idempotency.table.ts'
import { type Instance, instances } from './instance.table.ts'
import { keys } from './key.table.ts'
import { type Organization, organizations } from './organization.table.ts'

/** Accepts the deletion, in one transaction with the caller's checks: from here on no key of it is accepted. */
export function beginDeletion(tx: DirectoryDb, { id, nowMs }: { id: string; nowMs: number }): void {
  tx.update(organizations)
    .set({ status: 'suspended', deletingAtMs: nowMs })
    .where(and(eq(organizations.id, id), isNull(organizations.deletingAtMs)))
    .run()
  revokeAll(tx, { id, nowMs })
}

/**
 * Revokes the organization's keys and those of its instances, and deletes responses for repeated creates. Safe to
 * repeat.
 */
export function revokeAll(tx: DirectoryDb, { id, nowMs }: { id: string; nowMs: number }): void {
  tx.update(keys)
    .set({ revokedAtMs: nowMs })
    .where(and(eq(keys.organizationId, id), isNull(keys.revokedAtMs)))
    .run()
  tx.update(gatewayKeys)
    .set({ revokedAtMs: nowMs })
    .where(and(eq(gatewayKeys.organizationId, id), isNull(gatewayKeys.revokedAtMs)))
    .run()
  tx.delete(idempotency).where(eq(idempotency.organizationId, id)).run()
}

/** False if it has ended already, or was not accepted. */
export function endDeletion(tx: DirectoryDb, { id, nowMs }: { id: string; nowMs: number }): boolean {
  return (
    tx
      .update(organizations)
      .set({ deletedAtMs: nowMs })
      .where(and(eq(organizations.id, id), isNotNull(organizations.deletingAtMs), isNull(organizations.deletedAtMs)))
      .returning({ id: organizations.id })
      .all().length === 1
  )
}

/** Those whose deletion was accepted and has not ended. */
export function listDeleting(db: DirectoryDb): Organization[] {
  return db
    .select()
    .from(organizations)
    .where(and(isNotNull(organizations.deletingAtMs), isNull(organizations.deletedAtMs)))
    .orderBy(asc(organizations.deletingAtMs))
    .all()
}

export type Remains = {
  /** Not terminated yet, by name. */
  readonly instances: readonly Pick<Instance, 'id' | 'name' | 'status' | 'desired'>[]
  /** Builds that wait or run. */
  readonly builds: readonly string[]
  /** Builds with a VM or unfinished events. */
  readonly buildsOpen: number
  readonly reservedVms: number
  /** Bytes of finished builds' files. */
  readonly buildBytes: number
  /** Here, or perhaps on another host that has not heard of the end. */
  readonly buildsWithFiles: number
  readonly keysActive: number
  readonly gatewayKeysActive: number
  /** Records of terminated instances, which are kept for their time. */
  readonly records: number
}

/**
 * The directory of this host's fleet lacks this host's state of a build: the host that took it may still have its
 * source.
 */
const isUnreported = sql`EXISTS (
  SELECT 1 FROM outbox WHERE table_name = 'builds' AND row_key = json_object('id', ${builds.id}))`

/** All that an organization still has. */
export function remainsOf(db: DirectoryDb, id: string): Remains {
  const counted = (table: typeof keys | typeof gatewayKeys) =>
    db
      .select({ n: count() })
      .from(table)
      .where(and(eq(table.organizationId, id), isNull(table.revokedAtMs)))
      .get()?.n ?? 0
  const ofBuilds = eq(builds.organizationId, id)
  const files = db
    .select({ n: count(), bytes: sum(builds.diskBytes).mapWith(Number) })
    .from(builds)
    .where(and(ofBuilds, or(isNull(builds.removedAtMs), isUnreported)))
    .get()
  const living = ne(instances.status, 'terminated')
  return {
    instances: db
      .select({ id: instances.id, name: instances.name, status: instances.status, desired: instances.desired })
      .from(instances)
      .where(and(eq(instances.organizationId, id), living))
      .orderBy(asc(instances.name))
      .all(),
    builds: db
      .select({ id: builds.id })
      .from(builds)
      .where(and(ofBuilds, inArray(builds.state, [...LIVING_STATES])))
      .orderBy(asc(builds.createdAtMs), sql`rowid`)
      .all()
      .map(row => row.id),
    buildsOpen:
      db
        .select({ n: count() })
        .from(builds)
        .where(and(ofBuilds, isNull(builds.closedAtMs)))
        .get()?.n ?? 0,
    reservedVms:
      db.select({ n: count() }).from(buildReservations).where(eq(buildReservations.organizationId, id)).get()?.n ?? 0,
    buildBytes: files?.bytes ?? 0,
    buildsWithFiles: files?.n ?? 0,
    keysActive: counted(keys),
    gatewayKeysActive: counted(gatewayKeys),
    records:
      db
        .select({ n: count() })
        .from(instances)
        .where(and(eq(instances.organizationId, id), eq(instances.status, 'terminated')))
        .get()?.n ?? 0,
  }
}

/** Finished builds of an organization whose files are there, at most `limit`. */
export function listBuildsWithFiles(
  db: DirectoryDb,
  of: { organizationId: string; hostId: string; limit: number },
): string[] {
  return db
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        eq(builds.organizationId, of.organizationId),
        eq(builds.hostId, of.hostId),
        isNotNull(builds.closedAtMs),
        notInArray(builds.state, [...LIVING_STATES]),
        isNull(builds.removedAtMs),
      ),
    )
    .limit(of.limit)
    .all()
    .map(row => row.id)
}
