// The host's clock in the admin interface: whether records are deleted by it. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const AdminClock = Closed({
  /** `held`: the clock is not believed, and nothing is deleted by age. */
  state: OneOf(['believed', 'held']),
  /** Time of the wall clock. */
  now: Type.String(),
  /** How far the wall clock is ahead of the least that it must be; negative: behind. */
  ahead_s: Type.Integer(),
  /** Null if nothing need be done. */
  problem: OrNull(Type.String()),
  remedy: OrNull(Type.String()),
})
export type AdminClock = Static<typeof AdminClock>
