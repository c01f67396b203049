// The host's clock in the admin interface: whether records are deleted by it. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { OneOf } from '../check.ts'

export const AdminClock = Type.Object(
  {
    /** `held`: the clock is not believed, and nothing is deleted by age. */
    state: OneOf(['believed', 'held']),
    /** As the wall clock says. */
    now: Type.String(),
    /** How far the wall clock is ahead of the least that it must be; negative: behind. */
    ahead_s: Type.Integer(),
    /** Null: nothing is to be done. */
    problem: Type.Union([Type.String(), Type.Null()]),
    remedy: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
)
export type AdminClock = Static<typeof AdminClock>
