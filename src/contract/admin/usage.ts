// Usage of the inference gateway in the admin interface. Pure.

import { Closed } from '../forms.ts'
import { labelledUsageRows } from '../http/usage-rows.schema.ts'
import { type Static, Type } from '../type.ts'
import { Slug } from './admin.ts'

export const AdminUsage = Closed({
  organization: Slug,
  /** Names of the organization's keys by prefix, for keys that have one. */
  key_names: Type.Record(Type.String(), Type.String()),
  ...labelledUsageRows,
})
export type AdminUsage = Static<typeof AdminUsage>

/** `by`: names with commas in between; empty: one row with the sums. */
export const AdminUsageQuery = Type.Object({
  from: Type.String({ maxLength: 32 }),
  to: Type.String({ maxLength: 32 }),
  by: Type.Optional(Type.String({ maxLength: 64 })),
})
