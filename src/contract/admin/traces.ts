// Traces of the gateway in the admin interface. Pure.

import { type Static, Type } from '@sinclair/typebox'

const Count = Type.Integer({ minimum: 0 })

/** Spans on their way to the OTLP receiver, since the start. */
export const AdminTraces = Type.Object(
  {
    exported: Count,
    dropped: Count,
    waiting: Count,
    /** Why none is taken at present; null: nothing is known to be wrong. */
    problem: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
)
export type AdminTraces = Static<typeof AdminTraces>
