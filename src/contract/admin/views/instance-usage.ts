// CPU, memory and egress of an instance over the last hour, in the admin interface. Pure.

import { Closed, OrNull } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'

/** One hour. No share: limits each instance. */
export const instanceUsagePointsMax = 120

export const AdminInstanceUsage = Closed({
  /** vCPUs and memory of its VM; null without a VM on this host. */
  vcpus: OrNull(Type.Integer({ minimum: 1 })),
  memory_bytes: OrNull(Type.Integer({ minimum: 0 })),
  /** Oldest first. Empty without a VM on this host, and for the first seconds of one. */
  points: Type.Array(
    Closed({
      at: Type.String({ description: 'ISO 8601 UTC' }),
      /** CPUs in use on average since the previous point; null for the first one. */
      cpus: OrNull(Type.Number({ minimum: 0 })),
      /** Memory of its VM on the host. */
      memory_bytes: OrNull(Type.Integer({ minimum: 0 })),
      /** Total of its life. */
      egress_bytes: Type.Integer({ minimum: 0 }),
    }),
    { maxItems: instanceUsagePointsMax },
  ),
})
export type AdminInstanceUsage = Static<typeof AdminInstanceUsage>
