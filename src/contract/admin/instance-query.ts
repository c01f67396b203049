// Filter of an operator's list of instances. Pure.

import { OneOf } from '../check.ts'
import { Closed } from '../forms.ts'
import { INSTANCE_STATUSES } from '../http/instance.ts'
import { type Static, Type } from '../type.ts'

/** `current`: not terminated. `living`: neither failed nor terminated. */
export const LISTED_STATUSES = ['current', 'living', ...INSTANCE_STATUSES] as const
export const listedCountMax = 10_000
export const listedCountDefault = 1_000

/** The newest that fit, the oldest of these first. A filter that is left out lets everything pass. */
export const AdminInstanceQuery = Closed({
  organization: Type.Optional(Type.String({ maxLength: 63, description: 'Organization slug' })),
  status: Type.Optional(OneOf(LISTED_STATUSES)),
  /** The beginning of names. */
  name: Type.Optional(Type.String({ maxLength: 63, pattern: '^[a-z0-9-]+$' })),
  /** Created at this time or later. */
  since: Type.Optional(Type.String({ maxLength: 32, description: 'ISO 8601' })),
  /** A number in digits, since queries are text. */
  limit: Type.Optional(Type.String({ pattern: '^[0-9]{1,5}$' })),
})
export type AdminInstanceQuery = Static<typeof AdminInstanceQuery>
