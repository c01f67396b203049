// Stored responses to creates that carried an Idempotency-Key. Effects: SQL.

import { and, eq, inArray, lte, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { DirectoryDb } from '../db.ts'
import { type Idempotency, idempotency } from './idempotency.table.ts'

/** Expired responses are found too: the caller looks at `createdAtMs`. */
export function findIdempotency(db: DirectoryDb, key: { organizationId: string; key: string }): Idempotency | null {
  const found = db
    .select()
    .from(idempotency)
    .where(and(eq(idempotency.organizationId, key.organizationId), eq(idempotency.key, key.key)))
    .get()
  return found ?? null
}

type NewIdempotency = {
  readonly organizationId: string
  readonly key: string
  readonly bodySha256: Uint8Array
  readonly responseStatus: number
  /** JSON text. */
  readonly responseData: string
  readonly nowMs: number
}

/** Stores a response, replacing an expired one under the same key. */
export function insertIdempotency(db: DirectoryDb, response: NewIdempotency): void {
  assert(response.bodySha256.length === 32, 'a body is stored as its SHA-256')
  const kept = {
    bodySha256: Buffer.from(response.bodySha256),
    responseStatus: response.responseStatus,
    responseData: response.responseData,
    createdAtMs: response.nowMs,
  }
  db.insert(idempotency)
    .values({ organizationId: response.organizationId, key: response.key, ...kept })
    .onConflictDoUpdate({ target: [idempotency.organizationId, idempotency.key], set: kept })
    .run()
}

/** Removes at most `limit` responses made at or before a time. Returns how many. */
export function deleteExpiredIdempotency(
  db: DirectoryDb,
  expired: { createdAtOrBeforeMs: number; limit: number },
): number {
  const rowids = db
    .select({ rowid: sql<number>`rowid` })
    .from(idempotency)
    .where(lte(idempotency.createdAtMs, expired.createdAtOrBeforeMs))
    .limit(expired.limit)
  return db.delete(idempotency).where(inArray(sql`rowid`, rowids)).returning({ key: idempotency.key }).all().length
}
