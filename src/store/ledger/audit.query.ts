// The record of operators' commands, bounded to its newest rows. Effects: SQL.

import { and, asc, desc, eq, gt, gte, isNull, lt, lte, type SQL, sql } from 'drizzle-orm'
import { present } from '../../base/assert.ts'
import type { LedgerDb } from '../db.ts'
import { type AuditRow, audit } from './audit.table.ts'

/**
 * Commands and refusals have separate limits, so refused calls cannot push commands out.
 * No share: only administrators write commands.
 */
export const auditCommandsMax = 100_000
/** No share: apart from commands, which refusals therefore cannot push out. */
export const auditRefusedMax = 10_000
/** Finding the oldest row to keep counts them all, so it is done now and then. */
const pruneEvery = 64

export type NewAuditRow = Omit<AuditRow, 'seq' | 'endedAtMs' | 'times'>

/** Appends a command that is about to run (`result` null) or one that was refused. Returns its number. */
export function appendAudit(db: LedgerDb, row: NewAuditRow): number {
  const endedAtMs = row.result === null ? null : row.atMs
  const { seq } = present(
    db
      .insert(audit)
      .values({ ...row, endedAtMs, times: 1 })
      .returning({ seq: audit.seq })
      .get(),
    'an inserted row has a number',
  )
  if (seq % pruneEvery === 0) prune(db, { commandsMax: auditCommandsMax, refusedMax: auditRefusedMax })
  return seq
}

/** Removes what is older than the newest rows of each kind. */
export function prune(db: LedgerDb, { commandsMax, refusedMax }: { commandsMax: number; refusedMax: number }): void {
  for (const [refused, max] of [[false, commandsMax] as const, [true, refusedMax] as const]) {
    const first = db
      .select({ seq: audit.seq })
      .from(audit)
      .where(eq(audit.refused, refused))
      .orderBy(desc(audit.seq))
      .limit(1)
      .offset(max)
      .get()
    if (first === undefined) continue
    db.delete(audit)
      .where(and(eq(audit.refused, refused), lte(audit.seq, first.seq)))
      .run()
  }
}

export function settleAudit(
  db: LedgerDb,
  { seq, result, nowMs }: { seq: number; result: string; nowMs: number },
): void {
  db.update(audit).set({ result, endedAtMs: nowMs }).where(eq(audit.seq, seq)).run()
}

/** A refusal that was repeated. */
export function countAudit(db: LedgerDb, { seq, times }: { seq: number; times: number }): void {
  db.update(audit).set({ times }).where(eq(audit.seq, seq)).run()
}

/** Commands that an earlier daemon did not end. Returns them. */
export function interruptAudit(db: LedgerDb, nowMs: number): AuditRow[] {
  return db.update(audit).set({ result: 'interrupted', endedAtMs: nowMs }).where(isNull(audit.result)).returning().all()
}

/**
 * Returns at most `limit` rows: with `after`, those with a higher number, from there on; otherwise the newest. Oldest
 * first.
 */
export function listAudit(
  db: LedgerDb,
  asked: { after: number | null; sinceMs: number | null; actor: string | null; limit: number },
): AuditRow[] {
  const where: (SQL | undefined)[] = [
    asked.after === null ? undefined : gt(audit.seq, asked.after),
    asked.sinceMs === null ? undefined : gte(audit.atMs, asked.sinceMs),
    asked.actor === null ? undefined : eq(audit.actor, asked.actor),
  ]
  const order = asked.after === null ? desc(audit.seq) : asc(audit.seq)
  const rows = db
    .select()
    .from(audit)
    .where(and(...where))
    .orderBy(order)
    .limit(asked.limit)
    .all()
  return asked.after === null ? rows.reverse() : rows
}

/** Removes at most `limit` rows older than a time. Returns how many. */
export function deleteExpiredAudit(db: LedgerDb, { beforeMs, limit }: { beforeMs: number; limit: number }): number {
  const seqs = db.select({ seq: audit.seq }).from(audit).where(lt(audit.atMs, beforeMs)).limit(limit)
  return db.delete(audit).where(sql`${audit.seq} IN ${seqs}`).returning({ seq: audit.seq }).all().length
}
