// Usage of the inference gateway in the admin interface: by key, model and day (UTC), as JSON or CSV. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Slug } from './admin.ts'
import { OneOf } from './shape.ts'

const closed = { additionalProperties: false } as const
const Count = Type.Integer({ minimum: 0 })
const TextOrNull = Type.Union([Type.String(), Type.Null()])

/** Of one response. */
export const usageRowsMax = 10_000
export const usageDaysMax = 366

const sums = {
  requests: Count,
  prompt_tokens: Count,
  completion_tokens: Count,
  /** Exact: nine decimals. */
  cost_usd: Type.String({ pattern: '^[0-9]+\\.[0-9]{9}$' }),
}

export const AdminUsage = Type.Object(
  {
    organization: Slug,
    /** Days in UTC, both included. */
    from: Type.String(),
    to: Type.String(),
    by: Type.Array(OneOf(['key', 'model', 'day'])),
    /** By day, key and model. What was not asked for is null. */
    rows: Type.Array(Type.Object({ day: TextOrNull, key: TextOrNull, model: TextOrNull, ...sums }, closed)),
    total: Type.Object(sums, closed),
  },
  closed,
)
export type AdminUsage = Static<typeof AdminUsage>

/** `by`: names with commas in between; empty: one row with the sums. */
export const AdminUsageQuery = Type.Object({
  from: Type.String({ maxLength: 32 }),
  to: Type.String({ maxLength: 32 }),
  by: Type.Optional(Type.String({ maxLength: 64 })),
})

const COLUMNS = ['requests', 'prompt_tokens', 'completion_tokens', 'cost_usd'] as const

/** RFC 4180, with a line of names. Only the columns that were asked for. No cell is a formula to a spreadsheet. */
export function usageCsv({ by, rows }: AdminUsage): string {
  const names = [...(['day', 'key', 'model'] as const).filter(name => by.includes(name)), ...COLUMNS]
  return [names, ...rows.map(row => names.map(name => csvCell(row[name])))]
    .map(line => `${line.join(',')}\r\n`)
    .join('')
}

/** What spreadsheets take for a formula gets an apostrophe, which they take for "this is text". */
export function csvCell(value: string | number | null): string {
  const text = String(value ?? '')
  const harmless = /^[=+\-@\t\r\n]/.test(text.trimStart()) || /^[\t\r\n]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) || harmless !== harmless.trim() ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
