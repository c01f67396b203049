// API keys in the store; secrets arrive here already hashed. Effects: SQL.

import { and, eq, gt, isNull, lte, or, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import { builtOnce, type DirectoryDb } from '../db.ts'
import { type Key, type KeyScope, keys } from './key.table.ts'

export const touchIntervalMs = 60_000

type NewKey = {
  readonly prefix: string
  readonly organizationId: string
  readonly secretSha256: Uint8Array
  /** Default false: a host minted the key. */
  readonly isClientMade?: boolean
  readonly name?: string | null
  readonly scope: KeyScope
  readonly nowMs: number
}

/** False if the prefix is taken; mint another key. */
export function insertKey(db: DirectoryDb, key: NewKey): boolean {
  assert(key.secretSha256.length === 32, 'a key is stored as the SHA-256 of its secret')
  return (
    db
      .insert(keys)
      .values({
        prefix: key.prefix,
        organizationId: key.organizationId,
        secretSha256: Buffer.from(key.secretSha256),
        isClientMade: key.isClientMade ?? false,
        name: key.name ?? null,
        scope: key.scope,
        createdAtMs: key.nowMs,
      })
      .onConflictDoNothing({ target: keys.prefix })
      .returning({ prefix: keys.prefix })
      .all().length === 1
  )
}

/** Revoked keys are found too: the caller looks at `revokedAtMs`. */
export function findKey(db: DirectoryDb, prefix: string): Key | null {
  return selectKey(db).get({ prefix }) ?? null
}

const selectKey = builtOnce((db: DirectoryDb) =>
  db
    .select()
    .from(keys)
    .where(eq(keys.prefix, sql.placeholder('prefix')))
    .prepare(),
)

/** Returns the prefix of an organization's valid key with this name; null if there is none. */
export function prefixOfKeyName(db: DirectoryDb, named: { organizationId: string; name: string }): string | null {
  const { organizationId, name, revokedAtMs } = keys
  const found = db
    .select({ prefix: keys.prefix })
    .from(keys)
    .where(and(eq(organizationId, named.organizationId), eq(name, named.name), isNull(revokedAtMs)))
    .get()
  return found?.prefix ?? null
}

/** All keys of an organization, revoked ones included, oldest first. */
export function listKeys(db: DirectoryDb, organizationId: string): Key[] {
  return db
    .select()
    .from(keys)
    .where(eq(keys.organizationId, organizationId))
    .orderBy(keys.createdAtMs, keys.prefix)
    .all()
}

/** Idempotent: true whenever the key exists; the first revocation's time stays. */
export function revokeKey(db: DirectoryDb, revocation: { prefix: string; nowMs: number }): boolean {
  return (
    db
      .update(keys)
      .set({ revokedAtMs: sql`coalesce(${keys.revokedAtMs}, ${revocation.nowMs})` })
      .where(eq(keys.prefix, revocation.prefix))
      .returning({ prefix: keys.prefix })
      .all().length === 1
  )
}

/** Records a use, at most once per `touchIntervalMs`. Replaces a time in the future (the clock jumped back). */
export function touchKey(db: DirectoryDb, use: { prefix: string; nowMs: number }): void {
  db.update(keys)
    .set({ lastUsedAtMs: use.nowMs })
    .where(
      and(
        eq(keys.prefix, use.prefix),
        or(
          isNull(keys.lastUsedAtMs),
          lte(keys.lastUsedAtMs, use.nowMs - touchIntervalMs),
          gt(keys.lastUsedAtMs, use.nowMs),
        ),
      ),
    )
    .run()
}
