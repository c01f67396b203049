// The admin interface's words on the gateway: its VMs, their log, and the gateway in short. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { AdminTraces } from './traces.ts'

const TextOrNull = OrNull(Type.String())
const CountOrNull = OrNull(Type.Integer({ minimum: 0 }))
const Time = Type.String({ description: 'ISO 8601 UTC' })

const GatewayPlacement = OneOf(['vm', 'host', 'off'])

/** VMs of the gateway: those that are, then the last that were. */
export const AdminGatewayVms = Closed({
  placement: GatewayPlacement,
  /** Why no VM serves, or no newer one; null if nothing is known to be wrong. */
  problem: TextOrNull,
  gateways: Type.Array(
    Closed({
      vm: Type.String(),
      state: OneOf(['starting', 'serving', 'draining', 'gone']),
      address: TextOrNull,
      since: Time,
      /** Whether it is launched from what configuration and image say now. */
      current: Type.Boolean(),
      /** HOST_DATA of its reports. */
      workload_sha256: TextOrNull,
      keys_revision: CountOrNull,
      requests_running: CountOrNull,
      usage_waiting: CountOrNull,
      /** Since when rows wait and none is booked; null if none waits. */
      usage_waiting_since: OrNull(Time),
      usage_booked: Type.Integer({ minimum: 0 }),
      /** Why it does not do all that it should. */
      problem: TextOrNull,
      /** Why it is gone. */
      reason: TextOrNull,
    }),
  ),
})
export type AdminGatewayVms = Static<typeof AdminGatewayVms>

export const AdminGatewayVmLog = Closed({
  lines: Type.Array(Closed({ seq: Type.Integer({ minimum: 0 }), line: Type.String() })),
})

/** Service B in short. */
export const AdminGatewaySummary = Closed({
  placement: GatewayPlacement,
  /** The VM that serves, otherwise the newest that starts; null if there is none. */
  vm: TextOrNull,
  state: OrNull(OneOf(['serving', 'starting'])),
  /** Why it does not do all that it should, or why no VM serves; null if nothing is known to be wrong. */
  problem: TextOrNull,
  /** Upstreams that have to show evidence before they get prompts. */
  attested_upstreams: Type.Array(
    Closed({
      name: Type.String(),
      kind: Type.String(),
      /** Whether the upstream gets prompts. */
      attested: Type.Boolean(),
      last_good_at: OrNull(Time),
      age_s: CountOrNull,
      /** Since the gateway's start, by the check that failed first. */
      failures: Type.Array(Closed({ check: Type.String(), count: Type.Integer({ minimum: 0 }) })),
    }),
  ),
  /** Null if nothing is traced. */
  traces: OrNull(AdminTraces),
})
