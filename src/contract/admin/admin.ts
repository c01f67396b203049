// The admin interface: JSON over HTTP on the UNIX socket `admin.sock` of the state directory. Pure.
// The daemon responds with these shapes; the command line checks responses against them and prints them with --json.

import { type Static, Type } from '@sinclair/typebox'
import { OneOf } from '../check.ts'
import { BUILD_STATES } from '../http/build.ts'
import { KeyAliases, KeyModels } from '../key-rules.ts'
import { AdminClock } from './clock.ts'
import { AdminGatewaySummary } from './gateways.ts'
import { AdminBudgetSet, budgetFields, gatewayKeyRules, gatewayKeyTerms, spentFields } from './key-terms.ts'
import { AdminNames } from './names.ts'

export const adminSocketName = 'admin.sock'

const closed = { additionalProperties: false } as const
const Nullable = <T extends ReturnType<typeof Type.String> | ReturnType<typeof Type.Integer>>(schema: T) =>
  Type.Union([schema, Type.Null()])
const Time = Type.String({ description: 'ISO 8601 UTC' })
const TimeOrNull = Nullable(Time)
const CountOrNull = Nullable(Type.Integer({ minimum: 0 }))
const CountBy = Type.Record(Type.String(), Type.Integer({ minimum: 0 }))

const slugCharsMax = 32
export const Slug = Type.String({ maxLength: 63, description: 'Organization slug: a DNS label' })

/** Labels directly under the domain that name the appliance itself, or that people would think do. */
const RESERVED_SLUGS: ReadonlySet<string> = new Set(
  'admin api builds dns gateway host inference instances localhost mail ns ns1 ns2 root status strongroom www'.split(
    ' ',
  ),
)

/** The fault of a slug for a new organization, or null. It becomes a DNS label (RFC 1123 2.1) of every host name. */
export function slugProblem(slug: string): string | null {
  if (slug.length === 0 || slug.length > slugCharsMax) return `must have 1 to ${slugCharsMax} characters`
  if (!/^[a-z0-9-]+$/.test(slug)) return 'may hold lowercase letters a-z, digits and hyphens only'
  if (slug.startsWith('-') || slug.endsWith('-')) return 'may not begin or end with a hyphen'
  // RFC 5891 4.2.3.1: these positions mark encoded international names.
  if (slug.slice(2, 4) === '--') return 'may not have hyphens as its third and fourth characters'
  if (RESERVED_SLUGS.has(slug)) return 'is reserved for the appliance itself'
  return null
}

/** Body of every error response. */
export const AdminProblem = Type.Object(
  {
    error: Type.Object(
      {
        code: Type.String({ description: 'A fault code' }),
        message: Type.String(),
        param: Type.Optional(Type.String()),
      },
      closed,
    ),
  },
  closed,
)
export type AdminProblem = Static<typeof AdminProblem>

export const AdminOrganization = Type.Object(
  {
    slug: Slug,
    status: OneOf(['active', 'suspended']),
    created_at: Time,
    instances_living: Type.Integer({ minimum: 0 }),
    keys_active: Type.Integer({ minimum: 0 }),
    ...budgetFields,
    ...spentFields,
  },
  closed,
)
export type AdminOrganization = Static<typeof AdminOrganization>
export const AdminOrganizationList = Type.Object({ organizations: Type.Array(AdminOrganization) }, closed)
export const AdminOrganizationCreate = Type.Object({ slug: Slug }, closed)

const AdminKeyScope = OneOf(['write', 'read'])
export const AdminKey = Type.Object(
  {
    prefix: Type.String(),
    organization: Slug,
    scope: AdminKeyScope,
    created_at: Time,
    last_used_at: TimeOrNull,
    revoked_at: TimeOrNull,
  },
  closed,
)
export type AdminKey = Static<typeof AdminKey>
export const AdminKeyList = Type.Object({ keys: Type.Array(AdminKey) }, closed)
export const AdminKeyCreate = Type.Object({ scope: AdminKeyScope }, closed)
/** The only response that holds the whole key. */
export const AdminKeyCreated = Type.Object(
  {
    key: Type.String({ pattern: '^ca_[a-z0-9]{8}_[a-z0-9]{18}$' }),
    prefix: Type.String(),
    organization: Slug,
    scope: AdminKeyScope,
    created_at: Time,
  },
  closed,
)
export type AdminKeyCreated = Static<typeof AdminKeyCreated>

/** A key of the inference gateway. */
export const AdminGatewayKey = Type.Object(
  {
    prefix: Type.String(),
    organization: Slug,
    /** Id of the instance that the key was made for; null for a key of the organization. */
    instance: Nullable(Type.String()),
    state: OneOf(['active', 'expired', 'revoked']),
    ...gatewayKeyTerms,
    ...gatewayKeyRules,
    ...spentFields,
    created_at: Time,
    last_used_at: TimeOrNull,
    revoked_at: TimeOrNull,
  },
  closed,
)
export type AdminGatewayKey = Static<typeof AdminGatewayKey>
export const AdminGatewayKeyList = Type.Object({ keys: Type.Array(AdminGatewayKey) }, closed)
export const AdminGatewayKeyCreate = Type.Object(
  {
    ...gatewayKeyTerms,
    models: Type.Optional(KeyModels),
    aliases: Type.Optional(KeyAliases),
    ...AdminBudgetSet.properties,
  },
  closed,
)
export type AdminGatewayKeyCreate = Static<typeof AdminGatewayKeyCreate>
/** Omitted fields stay unchanged. */
export const AdminGatewayKeySet = Type.Partial(Type.Object({ ...gatewayKeyTerms, ...gatewayKeyRules }, closed))
export type AdminGatewayKeySet = Static<typeof AdminGatewayKeySet>
/** The only response that holds the whole key. */
export const AdminGatewayKeyCreated = Type.Object(
  {
    key: Type.String({ pattern: '^gw_[a-z0-9]{8}_[a-z0-9]{32}$' }),
    prefix: Type.String(),
    organization: Slug,
    ...gatewayKeyTerms,
    ...gatewayKeyRules,
    created_at: Time,
  },
  closed,
)
export type AdminGatewayKeyCreated = Static<typeof AdminGatewayKeyCreated>

const AdminVm = Type.Object(
  { id: Type.String(), state: Type.String(), address: Nullable(Type.String()), address_v6: Nullable(Type.String()) },
  closed,
)
export const AdminInstance = Type.Object(
  {
    id: Type.String(),
    organization: Slug,
    name: Type.String(),
    hostname: Type.String(),
    status: Type.String(),
    agent: Type.String(),
    public_key: Type.String(),
    inference_mode: Type.String(),
    inference_model: Type.String(),
    failure_code: Nullable(Type.String()),
    failure_message: Nullable(Type.String()),
    terminated_reason: Nullable(Type.String()),
    egress_bytes: Type.Integer({ minimum: 0 }),
    /** Egress cap of its whole life; an operator may have raised it. Null without a VM. */
    egress_limit_bytes: CountOrNull,
    egress_observed_at: TimeOrNull,
    egress_block_applied_at: TimeOrNull,
    /** Sent as answers to SSH since the cap was spent, as last sampled; null without a VM. */
    rescue_bytes: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
    created_at: Time,
    ready_at: TimeOrNull,
    /** When its VM proved at the claim what it is; null before, and for instances from before there was that. */
    attested_at: TimeOrNull,
    terminated_at: TimeOrNull,
    /** Null while the instance waits for capacity, and after its VM is gone. */
    vm: Type.Union([AdminVm, Type.Null()]),
  },
  closed,
)
export type AdminInstance = Static<typeof AdminInstance>
export const AdminInstanceList = Type.Object({ instances: Type.Array(AdminInstance) }, closed)

export const AdminEvent = Type.Object(
  {
    id: Type.Integer(),
    at: Time,
    kind: Type.String(),
    subject: Type.String(),
    detail: Type.Record(Type.String(), Type.Unknown()),
  },
  closed,
)
export type AdminEvent = Static<typeof AdminEvent>
/** Oldest first. */
export const AdminEventList = Type.Object({ events: Type.Array(AdminEvent) }, closed)
export const eventCountMax = 1000

/** An attested build. */
export const AdminBuild = Type.Object(
  {
    id: Type.String(),
    /** Null: of nobody, where no key is asked for. */
    organization: Nullable(Slug),
    state: OneOf(BUILD_STATES),
    nonce: Type.String(),
    source: Type.Object(
      {
        kind: OneOf(['archive', 'git']),
        /** Name of an archive, or address of a git repository. */
        name: Nullable(Type.String()),
        ref: Nullable(Type.String()),
        size_bytes: CountOrNull,
        sha256: Nullable(Type.String()),
      },
      closed,
    ),
    project_dir: Nullable(Type.String()),
    toolchain: Nullable(Type.String()),
    reproduce: Type.Boolean(),
    network: OneOf(['unused', 'open', 'closed']),
    /** Launch digest of its VM, from verified receipts; null before the first. */
    measurement: Nullable(Type.String()),
    simulated: Type.Union([Type.Boolean(), Type.Null()]),
    result: Type.Union([
      Type.Object({ size_bytes: Type.Integer({ minimum: 0 }), sha256: Type.String(), removed_at: TimeOrNull }, closed),
      Type.Null(),
    ]),
    error_type: Nullable(Type.String()),
    error: Nullable(Type.String()),
    /** Largest total size of its files. */
    disk_bytes: Type.Integer({ minimum: 0 }),
    created_at: Time,
    started_at: TimeOrNull,
    finished_at: TimeOrNull,
    /** When its VM was dismissed and its events were complete. */
    closed_at: TimeOrNull,
    vm_id: Nullable(Type.String()),
    /** Null while it waits for a VM, and after its VM is gone. */
    vm: Type.Union([AdminVm, Type.Null()]),
  },
  closed,
)
export type AdminBuild = Static<typeof AdminBuild>
/** The newest first. */
export const AdminBuildList = Type.Object({ builds: Type.Array(AdminBuild) }, closed)
export const buildListMax = 1000

/** `guest`: for connections of instances, by the authority that they trust. */
export const CERTIFICATE_NAMES = ['server', 'authority', 'guest', 'guest_authority'] as const

/** The warm pool. */
const AdminPool = Type.Object(
  {
    wanted: Type.Integer({ minimum: 0 }),
    warm: Type.Integer({ minimum: 0 }),
    booting: Type.Integer({ minimum: 0 }),
    /** Resource that the host lacks for the next VM: memory, vcpus, disk, addresses or asids. */
    lacking: Nullable(Type.String()),
    last_failure: Type.Union([Type.Object({ at: Time, reason: Type.String() }, closed), Type.Null()]),
    /** Null: nothing keeps it from asking for the next VM now. */
    next_attempt_at: TimeOrNull,
  },
  closed,
)

const AdminBuilds = Type.Object(
  {
    /** Null, as the bytes: the database is too damaged to be read. */
    states: Type.Union([CountBy, Type.Null()]),
    /** VMs that no build has taken. */
    wanted: Type.Integer({ minimum: 0 }),
    warm: Type.Integer({ minimum: 0 }),
    booting: Type.Integer({ minimum: 0 }),
    reserved: Type.Integer({ minimum: 0 }),
    /** Why the next VM cannot be made; null: no reason is known. */
    lacking: Nullable(Type.String()),
    disk_bytes: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
  },
  closed,
)

const AdminCollateral = Type.Object(
  {
    product: Type.String(),
    veks: Type.Integer({ minimum: 0 }),
    /** The newest. */
    vek_fetched_at: TimeOrNull,
    chain_fetched_at: TimeOrNull,
    crl_fetched_at: TimeOrNull,
    crl_next_update: TimeOrNull,
    /** `bad`: no report can be verified; `soon`: that is about to be so. */
    state: OneOf(['good', 'soon', 'bad']),
    problem: Nullable(Type.String()),
    remedy: Nullable(Type.String()),
  },
  closed,
)

export const AdminStatus = Type.Object(
  {
    version: Type.String(),
    pid: Type.Integer({ minimum: 1 }),
    host_id: Type.String(),
    platform: OneOf(['snp', 'kvm', 'tcg']),
    /** True on every platform but snp: the evidence comes from the simulator. */
    evidence_simulated: Type.Boolean(),
    /** The TPM of VMs: the host's swtpm, or why it emulates none. */
    tpm: OneOf(['swtpm', 'off', 'snp', 'missing']),
    domain: Type.String(),
    started_at: Time,
    clock: AdminClock,
    listen: Type.Object(
      {
        instances: Type.String(),
        inference: Nullable(Type.String()),
        builds: Nullable(Type.String()),
        dns: Nullable(Type.String()),
      },
      closed,
    ),
    tls: Type.Object(
      {
        source: OneOf(['local', 'operator']),
        expires_at: Time,
        /** The certificate of the authority that clients must trust; null with the operator's own certificate. */
        ca_file: Nullable(Type.String()),
        /** Every certificate that the daemon serves or signs by. */
        certificates: Type.Array(Type.Object({ name: OneOf(CERTIFICATE_NAMES), expires_at: Time }, closed)),
      },
      closed,
    ),
    operator_key: Type.Object(
      {
        /** SHA-384 of the ID key, hexadecimal: ID_KEY_DIGEST in every report of this host's VMs. */
        digest: Type.String({ pattern: '^[0-9a-f]{96}$' }),
        /** SubjectPublicKeyInfo, PEM. */
        public_key: Type.String({ maxLength: 1024 }),
      },
      closed,
    ),
    /** Certificates on this host for verifying SNP reports; null if it makes no such reports. */
    collateral: Type.Union([AdminCollateral, Type.Null()]),
    /** These counts are null where the database is too damaged to be read. */
    organizations: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
    instances: Type.Union([CountBy, Type.Null()]),
    vms: Type.Union([CountBy, Type.Null()]),
    capacity: Type.Object(
      {
        memory_mib_used: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
        memory_mib_total: Type.Integer({ minimum: 0 }),
        vcpus_used: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
        vcpus_total: Type.Integer({ minimum: 0 }),
        addresses_used: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()]),
        addresses_total: Type.Integer({ minimum: 0 }),
        /** Given back by VMs that ended, and free again after `network.address_rest_s`. */
        addresses_resting: Type.Integer({ minimum: 0 }),
        /** When the next one of these is free; null: none rests. */
        next_address_free_at: TimeOrNull,
      },
      closed,
    ),
    pool: AdminPool,
    gateway: AdminGatewaySummary,
    /** Service C; null when it is switched off. */
    builds: Type.Union([AdminBuilds, Type.Null()]),
    /** State of the list of names that instances may reach (`network.allow_names`); null without a list. */
    names: Type.Union([AdminNames, Type.Null()]),
    /** Reasons why this host is not ready and does not give clients what its services promise. Empty: none is known. */
    problems: Type.Array(
      Type.Object(
        { name: OneOf(['firewall', 'disk', 'database']), detail: Type.String(), remedy: Type.String() },
        closed,
      ),
    ),
  },
  closed,
)
export type AdminStatus = Static<typeof AdminStatus>

/** Where host and ledger differ: vm/machine/leaks.plan.ts has the words. */
export const AdminLeaks = Type.Object(
  {
    leaks: Type.Array(
      Type.Object(
        {
          kind: Type.String(),
          name: Type.String(),
          detail: Type.String(),
          /** Id of the VM that it belongs to; null: nothing tells. */
          vm: Nullable(Type.String()),
          /** The command that removes it, or what the daemon will do. */
          remedy: Type.String(),
        },
        closed,
      ),
    ),
  },
  closed,
)
export type AdminLeaks = Static<typeof AdminLeaks>
export type AdminLeak = AdminLeaks['leaks'][number]

/** How people name an instance: its id, its name if only one has it, or `slug/name`. */
export const InstanceReference = Type.String({ minLength: 1, maxLength: 128 })
export const consoleTailBytesMax = 67_108_864
