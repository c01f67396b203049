// Stored answers to creates that carried an Idempotency-Key. Effects: SQL.

import { and, eq, inArray, lte, sql } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { DirectoryDb } from '../db.ts'
import { type Idempotency, idempotency } from './idempotency.table.ts'

/** Old answers are found too: the caller looks at `createdAtMs`. */
export function findIdempotency(db: DirectoryDb, key: { organizationId: string; key: string }): Idempotency | null {
  const found = db
    .select()
    .from(idempotency)
    .where(and(eq(idempotency.organizationId, key.organizationId), eq(idempotency.key, key.key)))
    .get()
  return found ?? null
}

export type NewIdempotency = {
  readonly organizationId: string
  readonly key: string
  readonly bodySha256: Uint8Array
  readonly responseStatus: number
  /** JSON text. */
  readonly responseData: string
  readonly nowMs: number
}

/** Keeps an answer, in place of an outlived one under the same key. */
export function insertIdempotency(db: DirectoryDb, answer: NewIdempotency): void {
  assert(answer.bodySha256.length === 32, 'a body is stored as its SHA-256')
  const kept = {
    bodySha256: Buffer.from(answer.bodySha256),
    responseStatus: answer.responseStatus,
    responseData: answer.responseData,
    createdAtMs: answer.nowMs,
  }
  db.insert(idempotency)
    .values({ organizationId: answer.organizationId, key: answer.key, ...kept })
    .onConflictDoUpdate({ target: [idempotency.organizationId, idempotency.key], set: kept })
    .run()
}

/** Removes at most `limit` answers made at or before a time. Returns how many. */
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
