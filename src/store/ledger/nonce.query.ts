// Used attestation nonces in the store. Effects: SQL.

import { count, eq, inArray, lte, max } from 'drizzle-orm'
import { assert } from '../../base/assert.ts'
import type { LedgerDb, LedgerStore } from '../db.ts'
import { nonces } from './nonce.table.ts'

/** The nonces of a store as the ledger of nonces uses them. */
export function nonceStore(store: LedgerStore) {
  const rowsOf = (db: LedgerDb) => ({
    count: () => countNonces(db),
    newestMs: () => newestNonceMs(db),
    has: (nonce: Uint8Array) => hasNonce(db, nonce),
    insert: (use: Parameters<typeof insertNonce>[1]) => insertNonce(db, use),
    deleteExpired: (expired: Parameters<typeof deleteExpiredNonces>[1]) => deleteExpiredNonces(db, expired),
  })
  return {
    ...rowsOf(store.db),
    transact: <Result>(work: (rows: ReturnType<typeof rowsOf>) => Result) => store.transact(tx => work(rowsOf(tx))),
  }
}

/** False if it was used before; if two calls race, one gets true. */
export function insertNonce(db: LedgerDb, use: { nonce: Uint8Array; nowMs: number }): boolean {
  assert(use.nonce.length === 32, 'a nonce has 32 bytes')
  return (
    db
      .insert(nonces)
      .values({ nonce: Buffer.from(use.nonce), atMs: use.nowMs })
      .onConflictDoNothing({ target: nonces.nonce })
      .returning({ atMs: nonces.atMs })
      .all().length === 1
  )
}

export function hasNonce(db: LedgerDb, nonce: Uint8Array): boolean {
  const found = db
    .select({ atMs: nonces.atMs })
    .from(nonces)
    .where(eq(nonces.nonce, Buffer.from(nonce)))
  return found.get() !== undefined
}

/** Reads the whole index: call it at start, not per request. */
export function countNonces(db: LedgerDb): number {
  return db.select({ count: count() }).from(nonces).get()?.count ?? 0
}

/** Null if there is none. */
export function newestNonceMs(db: LedgerDb): number | null {
  return (
    db
      .select({ atMs: max(nonces.atMs) })
      .from(nonces)
      .get()?.atMs ?? null
  )
}

/** Deletes at most `limit` that were used at or before a time, oldest first. Returns how many. */
export function deleteExpiredNonces(db: LedgerDb, expired: { usedAtOrBeforeMs: number; limit: number }): number {
  const old = db
    .select({ nonce: nonces.nonce })
    .from(nonces)
    .where(lte(nonces.atMs, expired.usedAtOrBeforeMs))
    .orderBy(nonces.atMs)
    .limit(expired.limit)
  return db.delete(nonces).where(inArray(nonces.nonce, old)).returning({ atMs: nonces.atMs }).all().length
}
