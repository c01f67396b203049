// The transparency log in the store. Effects: SQL.

import { and, asc, eq, gte, lt, max } from 'drizzle-orm'
import { Fault } from '../../base/fault.ts'
import type { LedgerDb } from '../db.ts'
import { type LogCosignature, type LogEntryRow, logCosignatures, logEntries, logHashes } from './log.table.ts'

/** Number of entries. */
export function logSize(db: LedgerDb): number {
  const newest = db
    .select({ seq: max(logEntries.seq) })
    .from(logEntries)
    .get()?.seq
  return newest === null || newest === undefined ? 0 : newest + 1
}

export function insertLogEntry(
  db: LedgerDb,
  { seq, entry, leaf, nowMs }: { seq: number; entry: Uint8Array; leaf: Uint8Array; nowMs: number },
): void {
  db.insert(logEntries)
    .values({ seq, entry: Buffer.from(entry), leaf: Buffer.from(leaf), atMs: nowMs })
    .run()
}

export function insertLogHash(
  db: LedgerDb,
  { level, place, hash }: { level: number; place: number; hash: Uint8Array },
): void {
  db.insert(logHashes)
    .values({ level, place, hash: Buffer.from(hash) })
    .run()
}

/** Place of the entry with this leaf hash; null if it is not in the log. */
export function placeOfLeaf(db: LedgerDb, leaf: Uint8Array): number | null {
  const found = db
    .select({ seq: logEntries.seq })
    .from(logEntries)
    .where(eq(logEntries.leaf, Buffer.from(leaf)))
    .get()
  return found?.seq ?? null
}

/** At most `count`, from `from` on, oldest first. */
export function listLogEntries(db: LedgerDb, { from, count }: { from: number; count: number }): LogEntryRow[] {
  return db
    .select()
    .from(logEntries)
    .where(and(gte(logEntries.seq, from), lt(logEntries.seq, from + count)))
    .orderBy(asc(logEntries.seq))
    .all()
}

/** `count` neighbouring hashes of a level. Fault store.corrupt: they are not all there. */
export function listLogHashes(
  db: LedgerDb,
  { level, from, count }: { level: number; from: number; count: number },
): Uint8Array[] {
  const found =
    level === 0
      ? listLogEntries(db, { from, count }).map(({ leaf }) => leaf)
      : db
          .select({ hash: logHashes.hash })
          .from(logHashes)
          .where(and(eq(logHashes.level, level), gte(logHashes.place, from), lt(logHashes.place, from + count)))
          .orderBy(asc(logHashes.place))
          .all()
          .map(({ hash }) => hash)
  if (found.length !== count) throw new Fault('store.corrupt', 'the transparency log lacks hashes of its tree')
  return found.map(hash => new Uint8Array(hash))
}

export function listLogCosignatures(db: LedgerDb): LogCosignature[] {
  return db.select().from(logCosignatures).orderBy(asc(logCosignatures.witness)).all()
}

/** Replaces the former one of the witness. */
export function putLogCosignature(db: LedgerDb, row: LogCosignature): void {
  const { witness: target, ...set } = row
  db.insert(logCosignatures)
    .values({ witness: target, ...set })
    .onConflictDoUpdate({ target: logCosignatures.witness, set })
    .run()
}

export function clearLogCosignatures(db: LedgerDb): void {
  db.delete(logCosignatures).run()
}
