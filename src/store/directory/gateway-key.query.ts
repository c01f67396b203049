// Gateway keys in the store; secrets arrive here already hashed. Effects: SQL.

import { and, desc, eq, gt, inArray, isNotNull, isNull, lt, lte, ne, notExists, or, sql } from 'drizzle-orm'
import { assert, present } from '../../base/assert.ts'
import type { KeyRules, KeyShortBudgets } from '../../contract/key-rules.ts'
import { type DirectoryDb, prepareRaw } from '../db.ts'
import { type GatewayKey, gatewayKeys } from './gateway-key.table.ts'
import { type Instance, instances } from './instance.table.ts'
import { type Organization, organizations } from './organization.table.ts'
import { usage } from './usage/usage.table.ts'

export const gatewayTouchIntervalMs = 60_000
/** No share: a list for the operator. */
export const gatewayKeyListMax = 1000

/** The fields of a key that an operator may change. */
export type GatewayKeyTerms = KeyRules & {
  /** Null for the configured default at the time of use. */
  readonly requestsPerMinute: number | null
  readonly tokensPerMinute: number | null
  readonly concurrencyMax: number | null
  readonly expiresAtMs: number | null
  readonly budgetNanoUsd: number | null
  readonly budgetTokens: number | null
  readonly shortBudgets: KeyShortBudgets
}

type OptionalTerm = keyof KeyRules | 'budgetNanoUsd' | 'budgetTokens' | 'shortBudgets'

export type NewGatewayKey = Omit<GatewayKeyTerms, OptionalTerm> &
  Partial<Pick<GatewayKeyTerms, OptionalTerm>> & {
    readonly prefix: string
    readonly organizationId: string
    readonly instanceId: string | null
    readonly secretSha256: Uint8Array
    /** Default false: a host minted the key. */
    readonly isClientMade?: boolean
    readonly name?: string | null
    readonly nowMs: number
  }

/** False if the prefix is taken; mint another key. */
export function insertGatewayKey(db: DirectoryDb, key: NewGatewayKey): boolean {
  assert(key.secretSha256.length === 32, 'a key is stored as the SHA-256 of its secret')
  const { nowMs, secretSha256, ...row } = key
  return (
    db
      .insert(gatewayKeys)
      .values({ ...row, secretSha256: Buffer.from(secretSha256), createdAtMs: nowMs })
      .onConflictDoNothing({ target: gatewayKeys.prefix })
      .returning({ prefix: gatewayKeys.prefix })
      .all().length === 1
  )
}

/** False if there is no such key, or it is revoked. */
export function setGatewayKeyTerms(db: DirectoryDb, prefix: string, terms: GatewayKeyTerms): boolean {
  return (
    db
      .update(gatewayKeys)
      .set(terms)
      .where(and(eq(gatewayKeys.prefix, prefix), isNull(gatewayKeys.revokedAtMs)))
      .returning({ prefix: gatewayKeys.prefix })
      .all().length === 1
  )
}

/** Bytes of the lists of models and aliases of all valid keys. */
export function gatewayKeyRulesBytes(db: DirectoryDb): number {
  const bytes = (column: typeof gatewayKeys.models | typeof gatewayKeys.aliases) =>
    sql`coalesce(sum(length(cast(${column} AS blob))), 0)`
  const row = db
    .select({ bytes: sql<number>`${bytes(gatewayKeys.models)} + ${bytes(gatewayKeys.aliases)}` })
    .from(gatewayKeys)
    .where(isNull(gatewayKeys.revokedAtMs))
    .get()
  return row?.bytes ?? 0
}

/** Revoked and expired keys are found too. */
export function findGatewayKey(db: DirectoryDb, prefix: string): GatewayKey | null {
  return db.select().from(gatewayKeys).where(eq(gatewayKeys.prefix, prefix)).get() ?? null
}

/** Returns the prefix of an organization's valid key with this name; null if there is none. */
export function prefixOfGatewayKeyName(
  db: DirectoryDb,
  named: { organizationId: string; name: string; nowMs: number },
): string | null {
  const { organizationId, name, revokedAtMs, expiresAtMs } = gatewayKeys
  const isValid = and(isNull(revokedAtMs), or(isNull(expiresAtMs), gt(expiresAtMs, named.nowMs)))
  const found = db
    .select({ prefix: gatewayKeys.prefix })
    .from(gatewayKeys)
    .where(and(eq(organizationId, named.organizationId), eq(name, named.name), isValid))
    .get()
  return found?.prefix ?? null
}

/** Returns the names of an organization's gateway keys by prefix, for keys that have one. */
export function gatewayKeyNames(db: DirectoryDb, organizationId: string): Record<string, string> {
  const rows = db
    .select({ prefix: gatewayKeys.prefix, name: gatewayKeys.name })
    .from(gatewayKeys)
    .where(and(eq(gatewayKeys.organizationId, organizationId), isNotNull(gatewayKeys.name)))
    .all()
  return Object.fromEntries(rows.flatMap(({ prefix, name }) => (name === null ? [] : [[prefix, name]])))
}

/** A key with the fields of its owner that decide whether it is valid. */
export type KnownGatewayKey = {
  readonly key: GatewayKey
  readonly organizationStatus: Organization['status']
  readonly organizationBudget: Pick<Organization, 'budgetNanoUsd' | 'budgetTokens' | 'shortBudgets'>
  /** Null for an organization's own key. */
  readonly instanceDesired: Instance['desired'] | null
}

/**
 * Two counters; one of them grows with every change to this database. Do not read them within a transaction: a rollback
 * moves neither.
 */
export type ChangeMark = {
  /** Changes by this connection: SQLite's `total_changes()`, foreign key actions included. 0.2 µs. */
  readonly own: () => number
  /** Commits by any other connection: PRAGMA data_version. 3 µs, nearly all for SQLite's locks. */
  readonly others: () => number
}

/**
 * Reading `own` once per turn of the event loop is not enough: a request sent after a commit may be read in a turn that
 * began before it.
 */
export function prepareChangeMark(db: DirectoryDb): ChangeMark {
  // Raw and prepared once. Not the table-valued form, which prepares the pragma again each time.
  const own = prepareRaw<{ own: number }>(db, 'SELECT total_changes() AS own')
  const others = prepareRaw<{ data_version: number }>(db, 'PRAGMA data_version')
  return {
    own: () => present(own.get(), 'a function has a value').own,
    others: () => present(others.get(), 'a pragma has a value').data_version,
  }
}

/** The look-up of a request, prepared once. */
export function prepareGatewayKeyLookup(db: DirectoryDb): (prefix: string) => KnownGatewayKey | null {
  const query = db
    .select({
      key: gatewayKeys,
      organizationStatus: organizations.status,
      organizationBudget: {
        budgetNanoUsd: organizations.budgetNanoUsd,
        budgetTokens: organizations.budgetTokens,
        shortBudgets: organizations.shortBudgets,
      },
      instanceDesired: instances.desired,
    })
    .from(gatewayKeys)
    .innerJoin(organizations, eq(organizations.id, gatewayKeys.organizationId))
    .leftJoin(instances, eq(instances.id, gatewayKeys.instanceId))
    .where(eq(gatewayKeys.prefix, sql.placeholder('prefix')))
    .prepare()
  return prefix => query.get({ prefix }) ?? null
}

/** Every key that is valid now, ignoring its expiry; by prefix. */
export function listGoodGatewayKeys(db: DirectoryDb): GatewayKey[] {
  return db
    .select({ key: gatewayKeys })
    .from(gatewayKeys)
    .innerJoin(organizations, eq(organizations.id, gatewayKeys.organizationId))
    .leftJoin(instances, eq(instances.id, gatewayKeys.instanceId))
    .where(
      and(
        isNull(gatewayKeys.revokedAtMs),
        eq(organizations.status, 'active'),
        or(isNull(instances.desired), ne(instances.desired, 'absent')),
      ),
    )
    .orderBy(gatewayKeys.prefix)
    .all()
    .map(row => row.key)
}

/** Keys that are not revoked and have a budget. */
export function listBudgetedGatewayKeys(db: DirectoryDb): GatewayKey[] {
  const { revokedAtMs, budgetNanoUsd, budgetTokens, shortBudgets } = gatewayKeys
  const hasBudget = or(isNotNull(budgetNanoUsd), isNotNull(budgetTokens), isNotNull(shortBudgets))
  return db
    .select()
    .from(gatewayKeys)
    .where(and(isNull(revokedAtMs), hasBudget))
    .all()
}

/** The newest `gatewayKeyListMax` keys of an organization, its instances' and revoked ones included, oldest first. */
export function listGatewayKeys(db: DirectoryDb, organizationId: string): GatewayKey[] {
  return db
    .select()
    .from(gatewayKeys)
    .where(eq(gatewayKeys.organizationId, organizationId))
    .orderBy(desc(gatewayKeys.createdAtMs), desc(gatewayKeys.prefix))
    .limit(gatewayKeyListMax)
    .all()
    .reverse()
}

/** Idempotent: true whenever the key exists; the first revocation's time stays. */
export function revokeGatewayKey(db: DirectoryDb, revocation: { prefix: string; nowMs: number }): boolean {
  return (
    db
      .update(gatewayKeys)
      .set({ revokedAtMs: sql`coalesce(${gatewayKeys.revokedAtMs}, ${revocation.nowMs})` })
      .where(eq(gatewayKeys.prefix, revocation.prefix))
      .returning({ prefix: gatewayKeys.prefix })
      .all().length === 1
  )
}

/**
 * Revokes the keys of instances being deleted: once purged, their keys look like the organization's. Returns prefixes.
 */
export function revokeDeletedInstancesGatewayKeys(db: DirectoryDb, { nowMs }: { nowMs: number }): string[] {
  const deleted = db.select({ id: instances.id }).from(instances).where(eq(instances.desired, 'absent'))
  return db
    .update(gatewayKeys)
    .set({ revokedAtMs: nowMs })
    .where(and(isNull(gatewayKeys.revokedAtMs), inArray(gatewayKeys.instanceId, deleted)))
    .returning({ prefix: gatewayKeys.prefix })
    .all()
    .map(row => row.prefix)
}

/** Records a use, at most once per `gatewayTouchIntervalMs`. Replaces a time in the future (the clock jumped back). */
export function touchGatewayKey(db: DirectoryDb, use: { prefix: string; nowMs: number }): void {
  db.update(gatewayKeys)
    .set({ lastUsedAtMs: use.nowMs })
    .where(
      and(
        eq(gatewayKeys.prefix, use.prefix),
        or(
          isNull(gatewayKeys.lastUsedAtMs),
          lte(gatewayKeys.lastUsedAtMs, use.nowMs - gatewayTouchIntervalMs),
          gt(gatewayKeys.lastUsedAtMs, use.nowMs),
        ),
      ),
    )
    .run()
}

/**
 * Deletes at most `limit` keys that ended (revoked or expired) before a time. Returns their prefixes. Keeps the keys of
 * an organization with usage from before `usageBeforeMs`, because finding a key's own rows would read all rows of its
 * organization.
 */
export function purgeGatewayKeys(
  db: DirectoryDb,
  purge: { endedBeforeMs: number; usageBeforeMs: number; limit: number },
): string[] {
  const itsUsage = db
    .select({ id: usage.id })
    .from(usage)
    .where(and(eq(usage.organizationId, gatewayKeys.organizationId), lt(usage.atMs, purge.usageBeforeMs)))
  const ended = db
    .select({ prefix: gatewayKeys.prefix })
    .from(gatewayKeys)
    .where(
      and(
        or(lt(gatewayKeys.revokedAtMs, purge.endedBeforeMs), lt(gatewayKeys.expiresAtMs, purge.endedBeforeMs)),
        notExists(itsUsage),
      ),
    )
    .limit(purge.limit)
  return db
    .delete(gatewayKeys)
    .where(inArray(gatewayKeys.prefix, ended))
    .returning({ prefix: gatewayKeys.prefix })
    .all()
    .map(row => row.prefix)
}
