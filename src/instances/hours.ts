// Instance-hours of organizations by instance and day, for billing. Effects: reads the store in pieces with pauses, in
// which requests are answered.

import { assert } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { dayMs } from '../base/time.ts'
import {
  type AdminInstanceHours,
  HOUR_GROUPS,
  type HourGroup,
  instanceHoursText,
} from '../contract/admin/organizations/instance-hours.ts'
import { tooManyUsageRows, type UsageDays, usageRowsMax } from '../contract/http/usage-rows.ts'
import type { DirectoryDb } from '../store/db.ts'
import { instanceNames, listChangesOverlapping } from '../store/directory/instance.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { readySpans } from './billing.ts'
import { recordsKeptMs } from './retention.ts'
import { inOrder } from './usage.ts'

export type HoursDeps = {
  readonly db: DirectoryDb
  readonly clock: Pick<Clock, 'nowMs' | 'sleep'>
  /** `instances.retention_days` of the configuration. */
  readonly keptDays: number
  /** Records of instances that ended before this time may be removed already; 0 if none was. */
  readonly removedBeforeMs: number
}

export type HoursQuery = {
  readonly organizations: readonly Organization[]
  readonly days: UsageDays
  readonly by: ReadonlySet<HourGroup>
}

type Row = AdminInstanceHours['rows'][number]

/** Pause between two organizations. */
const gapMs = 2

/**
 * Sums the time for which instances were ready. Faults: invalid_request (more rows than one response has, or days of
 * which records may have been removed).
 */
export async function exportInstanceHours(
  { db, clock, keptDays, removedBeforeMs }: HoursDeps,
  { organizations, days, by }: HoursQuery,
): Promise<AdminInstanceHours> {
  const nowMs = clock.nowMs()
  const sinceMs = Math.max(nowMs - recordsKeptMs(keptDays), removedBeforeMs)
  checkComplete(organizations, { days, sinceMs, keptDays })
  const rows = new Map<string, Omit<Row, 'instance_hours'>>()
  for (const { id: organizationId, slug } of organizations) {
    const changes = inOrder(listChangesOverlapping(db, { organizationId, fromMs: days.startMs }))
    const names = by.has('instance') ? instanceNames(db, organizationId) : null
    for (const span of readySpans(changes, { ...days, nowMs })) {
      for (const { day, ms } of by.has('day') ? daysOf(span) : [{ day: null, ms: span.toMs - span.fromMs }]) {
        const row = {
          organization: by.has('organization') ? slug : null,
          instance: names?.get(span.instanceId) ?? null,
          instance_id: names === null ? null : span.instanceId,
          day,
        }
        const id = JSON.stringify(row)
        const known = rows.get(id)
        if (known !== undefined) known.ready_ms += ms
        else if (rows.size < usageRowsMax) rows.set(id, { ...row, ready_ms: ms })
        else throw tooManyUsageRows(usageRowsMax)
      }
    }
    await clock.sleep(gapMs)
  }
  return {
    ...{ from: days.from, to: days.to },
    counted_to: iso(Math.max(days.startMs, Math.min(days.endMs, nowMs))),
    by: HOUR_GROUPS.filter(group => by.has(group)),
    rows: [...rows].sort(([text], [other]) => (text < other ? -1 : 1)).map(([, row]) => withHours(row)),
    total: withHours({ ready_ms: [...rows.values()].reduce((sum, row) => sum + row.ready_ms, 0) }),
  }
}

function withHours<Sum extends { readonly ready_ms: number }>(sum: Sum): Sum & { instance_hours: string } {
  return { ...sum, instance_hours: instanceHoursText(sum.ready_ms) }
}

type Span = { readonly fromMs: number; readonly toMs: number }

/** Splits a span at midnights (UTC). */
function daysOf({ fromMs, toMs }: Span): { readonly day: string; readonly ms: number }[] {
  const parts: { day: string; ms: number }[] = []
  for (let atMs = fromMs; atMs < toMs; ) {
    const endMs = Math.min(toMs, (Math.floor(atMs / dayMs) + 1) * dayMs)
    assert(endMs > atMs, 'a day has a length')
    parts.push({ day: iso(atMs).slice(0, 10), ms: endMs - atMs })
    atMs = endMs
  }
  return parts
}

type Retention = {
  readonly days: UsageDays
  /** From when on every record exists. */
  readonly sinceMs: number
  readonly keptDays: number
}

/** Refuses days before those of which every record exists, because a bill would lack what was removed. */
function checkComplete(organizations: readonly Organization[], { days, sinceMs, keptDays }: Retention): void {
  if (days.startMs >= sinceMs) return
  const isOlder = organizations.some(({ createdAtMs }) => createdAtMs < sinceMs)
  if (!isOlder) return
  const first = iso(Math.ceil(sinceMs / dayMs) * dayMs).slice(0, 10)
  const message = `records of ended instances are kept for ${recordsKeptMs(keptDays) / dayMs} days (instances.retention_days = ${keptDays}), and removed ones do not come back, so the hours before ${first} may be incomplete; begin at ${first}, export more often, or keep records for longer`
  throw new Fault('invalid_request', message, { param: 'from' })
}
