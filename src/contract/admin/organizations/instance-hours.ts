// Instance-hours of organizations, for billing, in the admin interface. Pure.

import { OneOf } from '../../check.ts'
import { Closed, OrNull } from '../../forms.ts'
import { csvCell } from '../../http/usage-rows.ts'
import { type Static, Type } from '../../type.ts'
import { Slug } from '../admin.ts'

/** In the order of columns and rows. */
export const HOUR_GROUPS = ['organization', 'instance', 'day'] as const
export type HourGroup = (typeof HOUR_GROUPS)[number]

const TextOrNull = OrNull(Type.String())
const sums = {
  /** Exact. */
  ready_ms: Type.Integer({ minimum: 0 }),
  instance_hours: Type.String({ pattern: '^[0-9]+\\.[0-9]{6}$', description: 'Of `ready_ms`, rounded down.' }),
}

export const AdminInstanceHours = Closed({
  from: Type.String({ description: 'First day in UTC, like 2026-11-01.' }),
  to: Type.String({ description: 'Last day in UTC; it is included.' }),
  /** Instances that are ready count up to this time. */
  counted_to: Type.String({ description: 'ISO 8601 UTC' }),
  by: Type.Array(OneOf(HOUR_GROUPS)),
  /** A group that is not in `by` is null. Rows without time are left out. */
  rows: Type.Array(
    Closed({ organization: OrNull(Slug), instance: TextOrNull, instance_id: TextOrNull, day: TextOrNull, ...sums }),
  ),
  total: Closed(sums),
})
export type AdminInstanceHours = Static<typeof AdminInstanceHours>

/** `organization`: all of them without it, deleted ones included. `by`: names with commas in between. */
export const AdminInstanceHoursQuery = Type.Object({
  from: Type.String({ maxLength: 32 }),
  to: Type.String({ maxLength: 32 }),
  by: Type.Optional(Type.String({ maxLength: 64 })),
  organization: Type.Optional(Slug),
})

/** Formats hours with six decimals, rounded down, so that rows never add up to more than was used. */
export function instanceHoursText(ms: number): string {
  const millionths = (BigInt(ms) * 10n) / 36n
  return `${millionths / 1_000_000n}.${String(millionths % 1_000_000n).padStart(6, '0')}`
}

/** RFC 4180, with a header line and the requested columns. Spreadsheets read no cell as a formula. */
export function instanceHoursCsv({ by, rows }: Pick<AdminInstanceHours, 'by' | 'rows'>): string {
  const groups = HOUR_GROUPS.filter(group => by.includes(group))
  const names = [
    ...groups.flatMap(group => (group === 'instance' ? (['instance', 'instance_id'] as const) : [group])),
    ...(['ready_ms', 'instance_hours'] as const),
  ]
  return [names, ...rows.map(row => names.map(name => csvCell(row[name])))]
    .map(line => `${line.join(',')}\r\n`)
    .join('')
}
