// Organizations in the store. Effects: SQL.

import { eq, isNull, sql } from 'drizzle-orm'
import { builtOnce, type DirectoryDb } from '../db.ts'
import { countBuilds, countReservations, LIVING_STATES } from './build.query.ts'
import { type Organization, organizations } from './organization.table.ts'

/** Adds an active organization. False if the slug is taken, and nothing was written. */
export function insertOrganization(
  db: DirectoryDb,
  organization: { id: string; slug: string; nowMs: number },
): boolean {
  const { id, slug, nowMs } = organization
  return (
    db
      .insert(organizations)
      .values({ id, slug, status: 'active', createdAtMs: nowMs })
      .onConflictDoNothing({ target: organizations.slug })
      .returning({ id: organizations.id })
      .all().length === 1
  )
}

export function findOrganization(db: DirectoryDb, slug: string): Organization | null {
  return db.select().from(organizations).where(eq(organizations.slug, slug)).get() ?? null
}

export function organizationById(db: DirectoryDb, id: string): Organization | null {
  return selectById(db).get({ id }) ?? null
}

const selectById = builtOnce((db: DirectoryDb) =>
  db
    .select()
    .from(organizations)
    .where(eq(organizations.id, sql.placeholder('id')))
    .prepare(),
)

/** By slug; deleted ones with `deleted`. */
export function listOrganizations(db: DirectoryDb, { deleted = false } = {}): Organization[] {
  const where = deleted ? undefined : isNull(organizations.deletedAtMs)
  return db.select().from(organizations).where(where).orderBy(organizations.slug).all()
}

/** False if there is no such organization. */
export function setOrganizationStatus(
  db: DirectoryDb,
  change: { slug: string; status: Organization['status'] },
): boolean {
  return (
    db
      .update(organizations)
      .set({ status: change.status })
      .where(eq(organizations.slug, change.slug))
      .returning({ id: organizations.id })
      .all().length === 1
  )
}

export function setOrganizationQuotas(db: DirectoryDb, slug: string, quotas: Organization['quotas']): void {
  db.update(organizations).set({ quotas }).where(eq(organizations.slug, slug)).run()
}

/** Memory of a VM of each kind, in MiB. */
export type VmMemory = { readonly instanceMemoryMib: number; readonly buildMemoryMib: number }

/** Returns the memory that an organization's VMs take on all hosts, with those that its unfinished builds will get. */
export function organizationMemoryMib(
  db: DirectoryDb,
  { id: organizationId, livingCount }: Pick<Organization, 'id' | 'livingCount'>,
  { instanceMemoryMib, buildMemoryMib }: VmMemory,
): number {
  const builds = countBuilds(db, { organizationId, states: LIVING_STATES }) + countReservations(db, { organizationId })
  return livingCount * instanceMemoryMib + builds * buildMemoryMib
}

/** Null for no limit. */
export function setOrganizationBudget(
  db: DirectoryDb,
  slug: string,
  budget: Pick<Organization, 'budgetNanoUsd' | 'budgetTokens'> & Partial<Pick<Organization, 'shortBudgets'>>,
): void {
  db.update(organizations).set(budget).where(eq(organizations.slug, slug)).run()
}
