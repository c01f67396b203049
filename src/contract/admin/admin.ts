// The admin interface: JSON over HTTP on the UNIX socket `admin.sock` of the state directory. Pure.
// The daemon responds with these shapes; the command line checks responses against them and prints them with --json.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { BUILD_STATES } from '../http/build.ts'
import { KeyAliases, KeyMaker, KeyModels } from '../key-rules.ts'
import { type Static, Type } from '../type.ts'
import { AdminBackups } from './backups.ts'
import { AdminClock } from './clock.ts'
import { FleetStatus } from './fleet.ts'
import { AdminGatewaySummary } from './gateway-vms.ts'
import {
  AdminKeyBudgetSet,
  budgetFields,
  gatewayKeyRules,
  gatewayKeyTerms,
  heldFields,
  KeyName,
  keyName,
  keyNameInput,
  spentFields,
} from './key-terms.ts'
import { AdminLogSummary } from './log.ts'
import { MaintenanceNotice } from './maintenance.ts'
import { AdminNames } from './names.ts'
import { OrganizationQuotas } from './organizations/quotas.ts'
import { HostProblem, problemCountMax } from './problems.ts'

const Time = Type.String({ description: 'ISO 8601 UTC' })
const TimeOrNull = OrNull(Time)
const CountOrNull = OrNull(Type.Integer({ minimum: 0 }))
const CountBy = Type.Record(Type.String(), Type.Integer({ minimum: 0 }))

const slugCharsMax = 32
export const Slug = Type.String({ maxLength: 63, description: 'Organization slug: a DNS label' })

/** Labels directly under the domain that name the appliance itself, or that people would think do. */
const RESERVED_SLUGS: ReadonlySet<string> = new Set(
  'admin api builds console dns gateway host inference instances localhost mail ns ns1 ns2 root status strongroom www'.split(
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
export const AdminProblem = Closed({
  error: Closed({
    code: Type.String({ description: 'A fault code' }),
    message: Type.String(),
    param: Type.Optional(Type.String()),
  }),
})
export type AdminProblem = Static<typeof AdminProblem>

export const AdminOrganization = Closed({
  slug: Slug,
  status: OneOf(['active', 'suspended', 'deleting', 'deleted']),
  created_at: Time,
  /** Neither failed nor terminated. */
  instances_living: Type.Integer({ minimum: 0 }),
  instances_failed: Type.Integer({ minimum: 0 }),
  keys_active: Type.Integer({ minimum: 0 }),
  quotas: OrganizationQuotas,
  ...budgetFields,
  ...spentFields,
  ...heldFields,
})
export type AdminOrganization = Static<typeof AdminOrganization>
export const AdminOrganizationList = Closed({ organizations: Type.Array(AdminOrganization) })
export const AdminOrganizationCreate = Closed({ slug: Slug })

const AdminKeyScope = OneOf(['write', 'read'])
export const AdminKey = Closed({
  prefix: Type.String(),
  ...keyName,
  organization: Slug,
  scope: AdminKeyScope,
  made_by: KeyMaker,
  created_at: Time,
  last_used_at: TimeOrNull,
  revoked_at: TimeOrNull,
})
export type AdminKey = Static<typeof AdminKey>
export const AdminKeyList = Closed({ keys: Type.Array(AdminKey) })
export const AdminKeyCreate = Closed({ scope: AdminKeyScope, ...keyNameInput })
export type AdminKeyCreate = Static<typeof AdminKeyCreate>
const registration = { registration: Type.String({ maxLength: 256, description: 'As `key new` prints it' }) }
/** Registers a key that its client made. */
export const AdminKeyAdd = Closed({ ...AdminKeyCreate.properties, ...registration })
export type AdminKeyAdd = Static<typeof AdminKeyAdd>
/** The only response that holds the whole key. */
export const AdminKeyCreated = Closed({
  key: Type.String({ pattern: '^ca_[a-z0-9]{8}_[a-z0-9]{18}$' }),
  prefix: Type.String(),
  ...keyName,
  organization: Slug,
  scope: AdminKeyScope,
  created_at: Time,
})
export type AdminKeyCreated = Static<typeof AdminKeyCreated>

/** A key of the inference gateway. */
export const AdminGatewayKey = Closed({
  prefix: Type.String(),
  ...keyName,
  organization: Slug,
  /** Id of the instance that the key was made for; null for a key of the organization. */
  instance: OrNull(Type.String()),
  state: OneOf(['active', 'expired', 'revoked']),
  made_by: KeyMaker,
  ...gatewayKeyTerms,
  ...gatewayKeyRules,
  ...spentFields,
  ...heldFields,
  created_at: Time,
  last_used_at: TimeOrNull,
  revoked_at: TimeOrNull,
})
export type AdminGatewayKey = Static<typeof AdminGatewayKey>
export const AdminGatewayKeyList = Closed({ keys: Type.Array(AdminGatewayKey) })
export const AdminGatewayKeyCreate = Closed({
  ...keyNameInput,
  ...gatewayKeyTerms,
  models: Type.Optional(KeyModels),
  aliases: Type.Optional(KeyAliases),
  ...AdminKeyBudgetSet.properties,
})
export type AdminGatewayKeyCreate = Static<typeof AdminGatewayKeyCreate>
/** Registers a key that its client made. */
export const AdminGatewayKeyAdd = Closed({ ...AdminGatewayKeyCreate.properties, ...registration })
export type AdminGatewayKeyAdd = Static<typeof AdminGatewayKeyAdd>
/** Omitted fields stay unchanged. */
export const AdminGatewayKeySet = Type.Partial(Closed({ ...gatewayKeyTerms, ...gatewayKeyRules }))
export type AdminGatewayKeySet = Static<typeof AdminGatewayKeySet>
/** The only response that holds the whole key. */
export const AdminGatewayKeyCreated = Closed({
  key: Type.String({ pattern: '^gw_[a-z0-9]{8}_[a-z0-9]{32}$' }),
  prefix: Type.String(),
  ...keyName,
  organization: Slug,
  ...gatewayKeyTerms,
  ...gatewayKeyRules,
  created_at: Time,
})
export type AdminGatewayKeyCreated = Static<typeof AdminGatewayKeyCreated>

const AdminVm = Closed({
  id: Type.String(),
  state: Type.String(),
  address: OrNull(Type.String()),
  address_v6: OrNull(Type.String()),
})
export const AdminInstance = Closed({
  id: Type.String(),
  organization: Slug,
  name: Type.String(),
  hostname: Type.String(),
  status: Type.String(),
  agent: Type.String(),
  public_key: Type.String(),
  inference_mode: Type.String(),
  inference_model: Type.String(),
  failure_code: OrNull(Type.String()),
  failure_message: OrNull(Type.String()),
  terminated_reason: OrNull(Type.String()),
  egress_bytes: Type.Integer({ minimum: 0 }),
  /** Egress cap of its whole life; an operator may have raised it. Null without a VM. */
  egress_limit_bytes: CountOrNull,
  egress_observed_at: TimeOrNull,
  egress_block_applied_at: TimeOrNull,
  /** Sent as answers to SSH since the cap was spent, as last sampled; null without a VM. */
  rescue_bytes: OrNull(Type.Integer({ minimum: 0 })),
  created_at: Time,
  ready_at: TimeOrNull,
  /** When its VM proved at the claim what it is; null before, and for instances from before there was that. */
  attested_at: TimeOrNull,
  terminated_at: TimeOrNull,
  /** Null while the instance waits for capacity, and after its VM is gone. */
  vm: OrNull(AdminVm),
})
export type AdminInstance = Static<typeof AdminInstance>
/** `more`: older ones fit the query, too, and were left out by its limit. */
export const AdminInstanceList = Closed({ instances: Type.Array(AdminInstance), more: Type.Boolean() })
export type AdminInstanceList = Static<typeof AdminInstanceList>

export const AdminEvent = Closed({
  id: Type.Integer(),
  at: Time,
  kind: Type.String(),
  subject: Type.String(),
  detail: Type.Record(Type.String(), Type.Unknown()),
})
export type AdminEvent = Static<typeof AdminEvent>
/** Oldest first. */
export const AdminEventList = Closed({ events: Type.Array(AdminEvent) })
export const eventCountMax = 1000

/** An attested build. */
export const AdminBuild = Closed({
  id: Type.String(),
  /** Null for no owner, if no key is required. */
  organization: OrNull(Slug),
  state: OneOf(BUILD_STATES),
  nonce: Type.String(),
  source: Closed({
    kind: OneOf(['archive', 'git']),
    /** Name of an archive, or address of a git repository. */
    name: OrNull(Type.String()),
    ref: OrNull(Type.String()),
    size_bytes: CountOrNull,
    sha256: OrNull(Type.String()),
  }),
  project_dir: OrNull(Type.String()),
  toolchain: OrNull(Type.String()),
  /** Options that belong to one toolchain, as text; '' without any. */
  options: Type.String(),
  reproduce: Type.Boolean(),
  network: OneOf(['unused', 'open', 'closed']),
  /** Launch digest of its VM, from verified receipts; null before the first. */
  measurement: OrNull(Type.String()),
  simulated: OrNull(Type.Boolean()),
  result: OrNull(Closed({ size_bytes: Type.Integer({ minimum: 0 }), sha256: Type.String(), removed_at: TimeOrNull })),
  error_type: OrNull(Type.String()),
  error: OrNull(Type.String()),
  /** Largest total size of its files. */
  disk_bytes: Type.Integer({ minimum: 0 }),
  created_at: Time,
  started_at: TimeOrNull,
  finished_at: TimeOrNull,
  /** When its VM was dismissed and its events were complete. */
  closed_at: TimeOrNull,
  /** Name of the host that has it, if known here; null on a standalone host. */
  host: OrNull(Type.String()),
  vm_id: OrNull(Type.String()),
  /** Null while it waits for a VM, and after its VM is gone. */
  vm: OrNull(AdminVm),
})
export type AdminBuild = Static<typeof AdminBuild>
/** The newest first. */
export const AdminBuildList = Closed({ builds: Type.Array(AdminBuild) })
export const buildListMax = 1000

/** `guest`: for connections of instances, by the authority that they trust. */
export const CERTIFICATE_NAMES = ['server', 'authority', 'guest', 'guest_authority'] as const

/** A name with a certificate by ACME. */
const AdminAcmeName = Closed({
  name: Type.String({ maxLength: 255 }),
  /** Holder of the key. */
  holder: OneOf(['host', 'gateway']),
  /** Null if there is none to serve; then the local authority's is served. */
  expires_at: OrNull(Time),
  /** When it is ordered next; null means now. */
  next_at: OrNull(Time),
  /** The newest order, if it failed: the type of the server's problem document and its words. */
  failure: OrNull(
    Closed({ at: Time, type: OrNull(Type.String({ maxLength: 128 })), detail: Type.String({ maxLength: 512 }) }),
  ),
})
export type AdminAcmeName = Static<typeof AdminAcmeName>

/** The warm pool. */
const AdminPool = Closed({
  wanted: Type.Integer({ minimum: 0 }),
  warm: Type.Integer({ minimum: 0 }),
  booting: Type.Integer({ minimum: 0 }),
  /** Resource that the host lacks for the next VM: memory, vcpus, disk, addresses or asids. */
  lacking: OrNull(Type.String()),
  last_failure: OrNull(Closed({ at: Time, reason: Type.String() })),
  /** Null if nothing prevents the next request for a VM. */
  next_attempt_at: TimeOrNull,
})

const AdminBuilds = Closed({
  /** Null, as the bytes: the database is too damaged to be read. */
  states: OrNull(CountBy),
  /** VMs that no build has taken. */
  wanted: Type.Integer({ minimum: 0 }),
  warm: Type.Integer({ minimum: 0 }),
  booting: Type.Integer({ minimum: 0 }),
  reserved: Type.Integer({ minimum: 0 }),
  /** Why the next VM cannot be made; null if no reason is known. */
  lacking: OrNull(Type.String()),
  disk_bytes: OrNull(Type.Integer({ minimum: 0 })),
})

const AdminCollateral = Closed({
  product: Type.String(),
  veks: Type.Integer({ minimum: 0 }),
  /** The newest. */
  vek_fetched_at: TimeOrNull,
  chain_fetched_at: TimeOrNull,
  crl_fetched_at: TimeOrNull,
  crl_next_update: TimeOrNull,
  /** `bad`: no report can be verified; `soon`: that is about to be so. */
  state: OneOf(['good', 'soon', 'bad']),
  problem: OrNull(Type.String()),
  remedy: OrNull(Type.String()),
})

export const AdminStatus = Closed({
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
  listen: Closed({
    instances: Type.String(),
    inference: OrNull(Type.String()),
    builds: OrNull(Type.String()),
    dns: OrNull(Type.String()),
    /** The console for browsers. */
    console: OrNull(Type.String()),
    /** The metrics for Prometheus. */
    metrics: OrNull(Type.String()),
  }),
  tls: Closed({
    source: OneOf(['local', 'operator']),
    expires_at: Time,
    /** The certificate of the authority that clients must trust; null with the operator's own certificate. */
    ca_file: OrNull(Type.String()),
    /** Names from before a change of the domain, which are served until then; null if there are none. */
    former: OrNull(Closed({ names: Type.Array(Type.String()), until: Time })),
    /** Every certificate that the daemon serves or signs by. */
    certificates: Type.Array(Closed({ name: OneOf(CERTIFICATE_NAMES), expires_at: Time })),
    /** Names with a certificate by ACME; null if it is off. */
    acme: OrNull(Type.Array(AdminAcmeName)),
  }),
  operator_key: Closed({
    /** SHA-384 of the ID key, hexadecimal: ID_KEY_DIGEST in every report of this host's VMs. */
    digest: Type.String({ pattern: '^[0-9a-f]{96}$' }),
    /** SubjectPublicKeyInfo, PEM. */
    public_key: Type.String({ maxLength: 1024 }),
  }),
  /** Certificates on this host for verifying SNP reports; null if it makes no such reports. */
  collateral: OrNull(AdminCollateral),
  /** These counts are null if the database is too damaged to be read. */
  organizations: OrNull(Type.Integer({ minimum: 0 })),
  instances: OrNull(CountBy),
  vms: OrNull(CountBy),
  capacity: Closed({
    memory_mib_used: OrNull(Type.Integer({ minimum: 0 })),
    memory_mib_total: Type.Integer({ minimum: 0 }),
    vcpus_used: OrNull(Type.Integer({ minimum: 0 })),
    vcpus_total: Type.Integer({ minimum: 0 }),
    addresses_used: OrNull(Type.Integer({ minimum: 0 })),
    addresses_total: Type.Integer({ minimum: 0 }),
    /** Given back by VMs that ended, and free again after `network.address_rest_s`. */
    addresses_resting: Type.Integer({ minimum: 0 }),
    /** When the next one of these is free; null if none rests. */
    next_address_free_at: TimeOrNull,
  }),
  pool: AdminPool,
  gateway: AdminGatewaySummary,
  /** Service C; null when it is switched off. */
  builds: OrNull(AdminBuilds),
  /** State of the list of names that instances may reach (`network.allow_names`); null without a list. */
  names: OrNull(AdminNames),
  /** The transparency log; null if the database is too damaged to be read. */
  log: OrNull(AdminLogSummary),
  backups: AdminBackups,
  /** Budgets of which at least 80 % are spent, the fullest first; the key is null for an organization's. */
  budgets_near: Type.Optional(
    Type.Array(
      Closed({
        organization: Slug,
        key: OrNull(Type.String()),
        key_name: Type.Optional(KeyName),
        period: Type.String({ description: 'A month, a day, or `the week of` its Monday (UTC)' }),
        kind: OneOf(['usd', 'tokens']),
        percent: Type.Integer({ minimum: 80 }),
      }),
      { maxItems: 100 },
    ),
  ),
  /** Null if this host is in operation. */
  maintenance: OrNull(MaintenanceNotice),
  /** This host's part in its fleet; null if it is in none. */
  fleet: OrNull(FleetStatus),
  /** Whether no problem is critical: this host gives clients what its services promise. */
  ready: Type.Boolean(),
  /** Everything that is known to be wrong, the critical ones first. */
  problems: Type.Array(HostProblem, { maxItems: problemCountMax }),
})
export type AdminStatus = Static<typeof AdminStatus>

/** Where host and ledger differ: vm/machine/leaks.plan.ts has the words. */
export const AdminLeaks = Closed({
  leaks: Type.Array(
    Closed({
      kind: Type.String(),
      name: Type.String(),
      detail: Type.String(),
      /** Id of the VM that it belongs to; null if unknown. */
      vm: OrNull(Type.String()),
      /** The command that removes it, or what the daemon will do. */
      remedy: Type.String(),
    }),
  ),
})
export type AdminLeaks = Static<typeof AdminLeaks>
export type AdminLeak = AdminLeaks['leaks'][number]

/** How people name an instance: its id, its name if only one has it, or `slug/name`. */
export const InstanceReference = Type.String({ minLength: 1, maxLength: 128 })
export const consoleTailBytesMax = 67_108_864
