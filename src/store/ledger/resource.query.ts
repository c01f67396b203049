// Queries on resources: what was made on this host, for which VM, in which order. Effects: SQL.

import { and, asc, desc, eq } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type Resource, type ResourceKind, resources } from './vm.table.ts'

/** Records a resource before it is made. Idempotent for the same VM and name; another VM's name is an error. */
export function recordResource(
  db: LedgerDb,
  resource: { vmId: string; kind: ResourceKind; name: string; nowMs: number },
): void {
  const known = resourceOf(db, resource.vmId, resource.kind)
  if (known?.name === resource.name) return
  db.insert(resources)
    .values({ vmId: resource.vmId, kind: resource.kind, name: resource.name, createdAtMs: resource.nowMs })
    .onConflictDoUpdate({ target: [resources.vmId, resources.kind], set: { name: resource.name } })
    .run()
}

export function resourceOf(db: LedgerDb, vmId: string, kind: ResourceKind): Resource | null {
  return (
    db
      .select()
      .from(resources)
      .where(and(eq(resources.vmId, vmId), eq(resources.kind, kind)))
      .get() ?? null
  )
}

/** Newest first: the order of release. */
export function resourcesOf(db: LedgerDb, vmId: string): Resource[] {
  return db.select().from(resources).where(eq(resources.vmId, vmId)).orderBy(desc(resources.seq)).all()
}

export function listResources(db: LedgerDb, kind: ResourceKind): Resource[] {
  return db.select().from(resources).where(eq(resources.kind, kind)).orderBy(asc(resources.seq)).all()
}

/** Deletes the row of a resource that is gone. Idempotent. */
export function strikeResource(db: LedgerDb, resource: { vmId: string; kind: ResourceKind }): void {
  db.delete(resources)
    .where(and(eq(resources.vmId, resource.vmId), eq(resources.kind, resource.kind)))
    .run()
}
