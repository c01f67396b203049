// Traces of the gateway in the admin interface. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Closed, OrNull } from '../forms.ts'

const Count = Type.Integer({ minimum: 0 })

/** Spans on their way to the OTLP receiver, since the start. */
export const AdminTraces = Closed({
  exported: Count,
  dropped: Count,
  waiting: Count,
  /** Why none is taken at present; null: nothing is known to be wrong. */
  problem: OrNull(Type.String()),
})
export type AdminTraces = Static<typeof AdminTraces>
