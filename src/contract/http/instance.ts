// Instances and usage as service A's clients see them (contract 2.2, 2.3, 4.1). Pure. Fields stand in the order of the
// wire.

import { OneOf, OneOfOrNull } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { EgressPolicy } from './egress-policy.ts'

/** The packaged agent, and how instances reach a model. */
export const supportedAgent = 'opencode'
export const supportedInferenceMode = 'default_gateway'
/** 5 GB for the life of an instance (contract 8). */
export const egressLimitBytes = 5_368_709_120
export const instanceNameLength = 8
export const publicKeyCharsMax = 8_192
export const idempotencyKeyCharsMax = 255
export const idempotencyTtlMs = 24 * 60 * 60 * 1000

/** Failure codes of an instance, each with its message. */
export const INSTANCE_FAILURES = {
  capacity_exhausted: 'There is no room for another instance on this host right now.',
  boot_failed: 'The virtual machine could not be started.',
  boot_timeout: 'The virtual machine did not finish starting in time.',
  agent_unreachable: 'The virtual machine stopped answering.',
  network_lost: 'The network interface of the virtual machine was lost.',
  launch_mismatch: 'The virtual machine was not launched from what this host expects.',
  attestation_failed: 'The virtual machine could not prove what it is.',
  claim_failed: 'The virtual machine could not be set up for this instance.',
  ssh_unreachable: 'The instance did not become reachable over SSH in time.',
  host_restarted: 'The host restarted while the virtual machine was running.',
  host_restored: 'The host was replaced and its records were restored; the virtual machine was lost with the old host.',
  host_lost: 'The host of the virtual machine was lost.',
  internal: 'An unexpected error occurred.',
} as const satisfies Record<string, string>

export type InstanceFailureCode = keyof typeof INSTANCE_FAILURES
const FAILURE_CODES = Object.keys(INSTANCE_FAILURES) as InstanceFailureCode[]

/** States of an instance, in the order of its life. */
export const INSTANCE_STATUSES = ['provisioning', 'ready', 'failed', 'terminating', 'terminated'] as const

export const Timestamp = (description: string) =>
  Type.String({
    pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$',
    description: `${description} ISO 8601, UTC, milliseconds.`,
    examples: ['2026-11-20T08:30:00.000Z'],
  })
const Nullable = <T extends ReturnType<typeof Type.String>>(schema: T, description: string) =>
  OrNull(schema, { description })
const Usd = (description: string) =>
  Type.String({
    pattern: '^(0|[1-9][0-9]*)\\.[0-9]{2,6}$',
    description: `${description} US dollars, two to six decimals.`,
    examples: ['12.50'],
  })

export const InstanceName = Type.String({
  pattern: `^[a-z0-9]{${instanceNameLength}}$`,
  description:
    'Generated name, unique in the organization. It is not given to another instance while this record is kept.',
  examples: ['k3v9x2ma'],
})
export const instanceNamePattern = /^[a-z0-9]{8}$/

export const InstanceStatus = OneOf(INSTANCE_STATUSES, { description: 'Where the instance is in its life.' })

/** Body of `POST /v1/instances`. The service also parses the public key and looks the model up. */
export const CreateInstance = Closed({
  public_key: Type.String({
    maxLength: publicKeyCharsMax,
    description: 'OpenSSH public key, one line: type, base64, optional comment. ssh-ed25519 is the best choice.',
    examples: ['ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE ops@example.org'],
  }),
  // Without `default`: generators of clients take a field with one for required.
  agent: Type.Optional(
    Type.Literal(supportedAgent, { description: `The packaged agent to run; ${supportedAgent} if left out.` }),
  ),
  inference_mode: Type.Optional(
    Type.Literal(supportedInferenceMode, { description: 'How the agent reaches a model.' }),
  ),
  inference_model: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'A model of the default gateway. If left out, the operator chooses.',
    }),
  ),
  egress: Type.Optional(
    Closed(EgressPolicy.properties, {
      description:
        'What programs of the instance may reach, enforced inside its measured VM. If left out, the VM restricts nothing.',
    }),
  ),
})
export type CreateInstance = Static<typeof CreateInstance>

const created = {
  name: InstanceName,
  status: InstanceStatus,
  agent: Type.Literal(supportedAgent, { description: 'The packaged agent.' }),
  hostname: Type.String({
    maxLength: 253,
    description: '{name}.{organization slug}.{domain}; SSH connects to it once the instance is ready.',
    examples: ['k3v9x2ma.acme.agents.internal'],
  }),
  public_key: Type.String({
    maxLength: publicKeyCharsMax,
    description: 'The public key as it was sent at creation.',
  }),
  inference_mode: Type.Literal(supportedInferenceMode, { description: 'How the agent reaches a model.' }),
  inference_model: Type.String({ maxLength: 256, description: 'The model in use.', examples: ['strongroom-tiny'] }),
  egress_limit_bytes: Type.Literal(egressLimitBytes, { description: 'Egress cap for the life of the instance.' }),
}
const createdAt = { created_at: Timestamp('When the create was accepted.') }

/** `data` of the response to a create. */
export const InstanceCreated = Closed({ ...created, ...createdAt })
export type InstanceCreated = Static<typeof InstanceCreated>

/** The full record, in the responses to list, retrieve and delete. */
export const InstanceRecord = Closed({
  ...created,
  failure_code: OneOfOrNull(FAILURE_CODES, { description: 'Why the instance failed; null unless it did.' }),
  failure_message: Nullable(Type.String(), 'Why the instance failed, for people; null unless it did.'),
  terminated_reason: OneOfOrNull(['deleted_via_api', 'idle'], {
    description: 'Set once a delete has been accepted, or the idle time is over.',
  }),
  ...createdAt,
  ready_at: Nullable(Timestamp('When it became ready.'), 'When it became ready; null before.'),
  terminated_at: Nullable(Timestamp('When teardown finished.'), 'When teardown finished; null before.'),
})
export type InstanceRecord = Static<typeof InstanceRecord>

/** `data` of the response to a list. */
export const InstanceList = Closed({
  instances: Type.Array(InstanceRecord, {
    description:
      'All records of the organization, the oldest first. Records of terminated instances are kept for at least 30 days.',
  }),
  next_cursor: Type.Null({ description: 'Reserved for pagination.' }),
})
export type InstanceList = Static<typeof InstanceList>

/** `data` of `GET /v1/usage`. */
export const UsageSummary = Closed({
  pricing: Closed({
    period_start: Timestamp('Start of the current billing period, included.'),
    period_end: Timestamp('End of the current billing period, not included.'),
    subscription_cost_usd: Usd('Base cost of the period.'),
    instance_hours_included: Type.Integer({ minimum: 0, description: 'Instance-hours within the base cost.' }),
    overage_per_hour_usd: Usd('Cost of each further instance-hour.'),
  }),
  usage: Closed({
    instance_hours_used: Type.Number({
      minimum: 0,
      description: 'Hours that instances were ready in this period, all instances together.',
    }),
    inference_cost_usd: Usd('Inference through the default gateway in this period.'),
    egress_bytes: Type.Integer({
      minimum: 0,
      description:
        'Egress of all instances that are not terminated, each since its start, as last sampled. It counts what the cap counts, so never more than the cap: the allowance for answers to SSH once that is spent is apart.',
    }),
    egress_limit_bytes: Type.Literal(egressLimitBytes, { description: 'Egress cap of each single instance.' }),
    egress_observed_at: Timestamp(
      'When egress was last sampled; the time of this response if it has not been sampled yet.',
    ),
    egress_blocked: Type.Boolean({ description: 'Whether egress of any instance is blocked.' }),
    egress_block_applied_at: Nullable(
      Timestamp('When the oldest block in force was applied.'),
      'When the oldest block in force was applied; null when none is in force.',
    ),
  }),
})
export type UsageSummary = Static<typeof UsageSummary>
