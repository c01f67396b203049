// The time that this host believed last, with the boot and uptime of that moment. Effects: SQL.

import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { desc } from 'drizzle-orm'
import { resultOr } from '../../base/result-or.ts'
import type { LedgerDb } from '../db.ts'
import { events } from './event.table.ts'
import { readMeta, swapMeta } from './meta.query.ts'

const Mark = Type.Object({ wallMs: Type.Number(), bootId: Type.String(), uptimeMs: Type.Number({ minimum: 0 }) })

const name = 'clock_mark'

/** Without a mark the time of the newest event, in no known boot; null if there is no event either. */
export function readClockMark(db: LedgerDb): Static<typeof Mark> | null {
  const text = readMeta(db, name)
  const mark: unknown = text === null ? null : parsed(text)
  if (Value.Check(Mark, mark)) return mark
  const newest = db.select({ atMs: events.atMs }).from(events).orderBy(desc(events.id)).limit(1).get()
  return newest === undefined ? null : { wallMs: newest.atMs, bootId: '', uptimeMs: 0 }
}

export function writeClockMark(db: LedgerDb, { wallMs, bootId, uptimeMs }: Static<typeof Mark>): void {
  swapMeta(db, name, JSON.stringify({ wallMs, bootId, uptimeMs }))
}

/** Null if another program has written it. */
function parsed(text: string): unknown {
  return resultOr(() => JSON.parse(text), null)
}
