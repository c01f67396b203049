// The operator's say in the egress limits of instances, on the admin socket (see admin.ts). Pure.

import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

/** 1 PiB. Larger limits have no use, and sums of such limits are still exact numbers. */
export const egressLimitBytesMax = 2 ** 50

const Bytes = OrNull(Type.Integer({ minimum: 1, maximum: egressLimitBytesMax }))

/** Either `to_bytes` (the new limit) or `by_bytes` (the increase) is null. */
export const AdminEgressRaise = Closed({
  to_bytes: Bytes,
  by_bytes: Bytes,
  reason: OrNull(Type.String({ maxLength: 500 })),
  /** Login name of the operator, for the journal. Callers of the socket are root and may write any. */
  operator: Type.String({ minLength: 1, maxLength: 64 }),
})
export type AdminEgressRaise = Static<typeof AdminEgressRaise>
