// The operator's journal, bounded to its newest entries. Effects: SQL.

import { desc, eq, lte } from 'drizzle-orm'
import type { Logger } from '../../base/log.ts'
import { type LedgerDb, prepareRaw } from '../db.ts'
import { type Event, events } from './event.table.ts'

/** No share: the operator's log; the oldest entry is deleted, and no decision depends on it. */
export const eventCountMax = 100_000

type NewEvent = {
  readonly nowMs: number
  /** `instance.ready`, `vm.failed` … */
  readonly kind: string
  /** The organization, instance or VM of the event; empty for the host. */
  readonly subject: string
  /** No secrets. */
  readonly detail: Record<string, unknown>
}

/** Appends one entry and deletes what is older than the newest `eventCountMax`. */
export function appendEvent(db: LedgerDb, event: NewEvent): void {
  const { nowMs, kind, subject, detail } = event
  const row = db.insert(events).values({ atMs: nowMs, kind, subject, detail }).returning({ id: events.id }).get()
  // Ids only grow (AUTOINCREMENT), so the oldest entries are a range at the front of the primary key.
  db.delete(events)
    .where(lte(events.id, row.id - eventCountMax))
    .run()
}

/** Like `appendEvent`, but never throws: an event that cannot be written goes to the log. */
export function noteEvent(db: LedgerDb, log: Pick<Logger, 'error'>, event: NewEvent): void {
  try {
    appendEvent(db, event)
  } catch (error) {
    const { kind, subject, detail } = event
    log.error('an entry of the journal could not be written', { kind, subject, detail, error })
  }
}

/** Newest first, at most `limit`; `subject` null for every subject. */
export function listEvents(db: LedgerDb, filter: { subject?: string | null; limit: number }): Event[] {
  const subject = filter.subject ?? null
  return db
    .select()
    .from(events)
    .where(subject === null ? undefined : eq(events.subject, subject))
    .orderBy(desc(events.id))
    .limit(filter.limit)
    .all()
}

export type KindEvent = {
  readonly id: number
  readonly atMs: number
  readonly kind: string
  readonly subject: string
  /** JSON. */
  readonly detail: string
}

/**
 * Returns a function that reads the entries of these kinds after an id, oldest first. Kinds are words of the program.
 */
export function prepareEventsOfKinds(db: LedgerDb, kinds: readonly string[]): (afterId: number) => KindEvent[] {
  const list = kinds.map(kind => `'${kind}'`).join(', ')
  const events = prepareRaw<KindEvent>(
    db,
    `SELECT id, at_ms AS atMs, kind, subject, detail FROM events
    WHERE id > ? AND kind IN (${list}) ORDER BY id LIMIT ${eventCountMax}`,
  )
  return afterId => events.all(afterId)
}
