// Passkeys of the console. Effects: SQL.

import { asc, count, eq } from 'drizzle-orm'
import type { LedgerDb } from '../db.ts'
import { type Passkey, passkeys } from './passkey.table.ts'

/** The oldest first. */
export function listPasskeys(db: LedgerDb): Passkey[] {
  return db.select().from(passkeys).orderBy(asc(passkeys.createdAtMs), asc(passkeys.id)).all()
}

export function passkeyById(db: LedgerDb, id: string): Passkey | null {
  return db.select().from(passkeys).where(eq(passkeys.id, id)).get() ?? null
}

export function passkeysOf(db: LedgerDb, actor: string): Passkey[] {
  return db.select().from(passkeys).where(eq(passkeys.actor, actor)).orderBy(asc(passkeys.createdAtMs)).all()
}

export function countPasskeys(db: LedgerDb): number {
  return db.select({ value: count() }).from(passkeys).get()?.value ?? 0
}

/** Returns false if this id exists. */
export function insertPasskey(db: LedgerDb, row: Omit<Passkey, 'lastUsedAtMs'>): boolean {
  return db.insert(passkeys).values(row).onConflictDoNothing().returning({ id: passkeys.id }).all().length === 1
}

export function notePasskeyUse(
  db: LedgerDb,
  { id, counter, nowMs }: { readonly id: string; readonly counter: number; readonly nowMs: number },
): void {
  db.update(passkeys).set({ counter, lastUsedAtMs: nowMs }).where(eq(passkeys.id, id)).run()
}

/** False if there is none. */
export function deletePasskey(db: LedgerDb, id: string): boolean {
  return db.delete(passkeys).where(eq(passkeys.id, id)).returning({ id: passkeys.id }).all().length === 1
}
