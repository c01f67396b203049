// Traces of the gateway in the admin interface. Pure.

import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const Count = Type.Integer({ minimum: 0 })

/** Spans on their way to the OTLP receiver, since the start. */
export const AdminTraces = Closed({
  exported: Count,
  dropped: Count,
  waiting: Count,
  /** Why none is taken at present; null if nothing is known to be wrong. */
  problem: OrNull(Type.String()),
})
export type AdminTraces = Static<typeof AdminTraces>
