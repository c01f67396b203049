// Responses of service A, as far as the client's commands use them. The host of the service is not trusted: each text
// has a form that a terminal can print, each number a bound, and fields of later versions are ignored. Pure.

import { OrNull } from '../../contract/forms.ts'
import { InstanceName } from '../../contract/http/instance.ts'
import { type Static, Type } from '../../contract/type.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'

const Time = Type.String({ maxLength: 40, pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,16}Z$' })
const Word = Type.String({ pattern: '^[a-z][a-z0-9_-]{0,63}$' })
const Usd = Type.String({ pattern: '^[0-9]{1,12}\\.[0-9]{2,6}$' })
const bytesMax = Number.MAX_SAFE_INTEGER
const Bytes = Type.Integer({ minimum: 0, maximum: bytesMax })

/** The words of a failure are free text: print them by `oneLine`. */
export const SeenInstance = Type.Object({
  name: InstanceName,
  status: Word,
  hostname: Type.String({ maxLength: 253, pattern: '^[a-z0-9.-]+$' }),
  public_key: Type.String({ maxLength: 8_192 }),
  inference_model: Type.String({ maxLength: 256 }),
  created_at: Time,
  ready_at: Type.Optional(OrNull(Time)),
  terminated_at: Type.Optional(OrNull(Time)),
  terminated_reason: Type.Optional(OrNull(Word)),
  failure_code: Type.Optional(OrNull(Word)),
  failure_message: Type.Optional(OrNull(Type.String({ maxLength: 2_000 }))),
})
export type SeenInstance = Static<typeof SeenInstance>

export const SeenInstances = Type.Object({ instances: Type.Array(SeenInstance, { maxItems: 200_000 }) })

export const SeenUsage = Type.Object({
  pricing: Type.Object({
    period_start: Time,
    period_end: Time,
    subscription_cost_usd: Usd,
    instance_hours_included: Type.Integer({ minimum: 0, maximum: 1_000_000_000 }),
    overage_per_hour_usd: Usd,
  }),
  usage: Type.Object({
    instance_hours_used: Type.Number({ minimum: 0, maximum: 1_000_000_000 }),
    inference_cost_usd: Usd,
    egress_bytes: Bytes,
    egress_limit_bytes: Bytes,
    egress_observed_at: Time,
    egress_blocked: Type.Boolean(),
    egress_block_applied_at: OrNull(Time),
  }),
})
export type SeenUsage = Static<typeof SeenUsage>

/** Reports whether the host name is NAME.ORGANIZATION.DOMAIN with the record's own name. */
export function hasOwnHostname({ name, hostname }: Pick<SeenInstance, 'name' | 'hostname'>): boolean {
  return readInstanceHostname(hostname)?.name === name
}

/** Reports whether the VM of this status exists, or is about to. */
export function isLiving(status: string): boolean {
  return status !== 'terminated' && status !== 'terminating' && status !== 'failed'
}
