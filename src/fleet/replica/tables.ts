// The tables that every host of a fleet copies: their columns, and how a value from elsewhere merges with the local
// one. Triggers, statements of both databases, and the conversion between them are derived from this. Pure.

/**
 * How two values of a column merge. `fixed`: set once, with the row. `wish`: the value last requested by an owner or
 * operator; a host's own progress never changes it. `first`: an existing value stays. `latest`: the greater number
 * wins. `owner`: the value of the host that has the instance wins. `sampled`: as `owner`, but egress never falls in a
 * copy. `status`, `desired`: the furthest along wins.
 * `attempt`: the value of the row with the greater column `attempt` wins. Such a row starts over: a copy takes all its
 * columns. `stage`: the value of the row that is further along by `buildStage` wins. `holder`: the value of the host
 * that has the build wins, or of its next host after a handover.
 */
export type Merge =
  | 'fixed'
  | 'wish'
  | 'first'
  | 'latest'
  | 'owner'
  | 'sampled'
  | 'status'
  | 'desired'
  | 'attempt'
  | 'stage'
  | 'holder'

export type Column = {
  readonly name: string
  readonly type: 'text' | 'integer' | 'bytes'
  readonly merge: Merge
  /** Changes within the same interval of this length are not reported. */
  readonly reportedEveryMs?: number
  /** A change of such columns alone goes into the table `samples`, which no host copies. */
  readonly isSampled?: boolean
  /** Value for rows of a directory without this column. */
  readonly otherwise?: number
}

export type ReplicaTable = {
  readonly name: string
  readonly key: readonly string[]
  readonly columns: readonly Column[]
  /** Rows are only added, and are deleted together with their parent. */
  readonly isLog?: boolean
  /** Column with the instance whose host alone may write the row; null if rows have no owner, or name it themselves. */
  readonly ofInstance?: string
  /** Rows are sums that change with every request. They are reported a few times a minute, and contain their owner. */
  readonly isSum?: boolean
  /** The column `host_id` names the only host that may report a row. */
  readonly isHeld?: boolean
  /** The directory's table with the samples of its rows by host, read for requests (directory/samples). */
  readonly samples?: SampleTable
  /** Whether a host may add or remove rows on its own. */
  readonly hostMay: readonly ('insert' | 'delete')[]
}

export const SAMPLE_TABLES = ['instance_egress', 'key_uses', 'gateway_key_uses'] as const
export type SampleTable = (typeof SAMPLE_TABLES)[number]

/** Tables in an order in which referenced tables come first. */
export const REPLICA_TABLES: readonly ReplicaTable[] = [
  {
    name: 'organizations',
    key: ['id'],
    hostMay: [],
    columns: [
      ...texts('fixed', 'id', 'slug'),
      ...texts('wish', 'status'),
      ...integers('fixed', 'created_at_ms'),
      ...integers('wish', 'budget_nano_usd', 'budget_tokens'),
      ...texts('wish', 'short_budgets', 'quotas'),
      ...integers('first', 'deleting_at_ms', 'deleted_at_ms'),
    ],
  },
  {
    name: 'keys',
    key: ['prefix'],
    samples: 'key_uses',
    hostMay: [],
    columns: [
      ...texts('fixed', 'prefix', 'organization_id'),
      { name: 'secret_sha256', type: 'bytes', merge: 'fixed' },
      ...texts('fixed', 'scope'),
      { name: 'client_made', type: 'integer', merge: 'fixed', otherwise: 0 },
      ...texts('fixed', 'name'),
      ...integers('fixed', 'created_at_ms'),
      ...integers('first', 'revoked_at_ms'),
      { name: 'last_used_at_ms', type: 'integer', merge: 'latest', isSampled: true },
    ],
  },
  {
    name: 'instances',
    key: ['id'],
    samples: 'instance_egress',
    hostMay: [],
    columns: [
      ...texts('fixed', 'id', 'organization_id', 'name', 'hostname'),
      ...texts('attempt', 'host_id'),
      { name: 'attempt', type: 'integer', merge: 'latest', otherwise: 1 },
      { name: 'desired', type: 'text', merge: 'desired' },
      { name: 'status', type: 'text', merge: 'status' },
      ...texts('fixed', 'agent', 'public_key', 'inference_mode', 'inference_model'),
      ...texts('fixed', 'egress_policy'),
      // Without vm_id: the VM is internal to the host.
      ...texts('first', 'failure_code', 'failure_message', 'terminated_reason'),
      { name: 'egress_bytes', type: 'integer', merge: 'sampled', isSampled: true },
      { name: 'egress_observed_at_ms', type: 'integer', merge: 'sampled', isSampled: true, reportedEveryMs: 60_000 },
      ...integers('owner', 'egress_block_applied_at_ms'),
      ...integers('fixed', 'created_at_ms'),
      ...integers('first', 'ready_at_ms', 'terminated_at_ms'),
      ...integers('latest', 'changed_at_ms'),
      ...texts('owner', 'platform'),
    ],
  },
  {
    name: 'instance_changes',
    key: ['instance_id', 'status'],
    isLog: true,
    hostMay: ['insert'],
    columns: [...texts('fixed', 'instance_id', 'status'), ...integers('fixed', 'at_ms')],
  },
  {
    name: 'instance_attestations',
    key: ['instance_id'],
    ofInstance: 'instance_id',
    hostMay: ['insert'],
    columns: [
      ...texts('fixed', 'instance_id'),
      ...texts('owner', 'nonce', 'ssh_host_key'),
      ...integers('owner', 'attested_at_ms'),
      ...texts('owner', 'document'),
    ],
  },
  {
    name: 'instance_addresses',
    key: ['instance_id'],
    ofInstance: 'instance_id',
    hostMay: ['insert', 'delete'],
    columns: [...texts('fixed', 'instance_id'), ...texts('owner', 'address', 'address_v6')],
  },
  {
    name: 'gateway_keys',
    key: ['prefix'],
    samples: 'gateway_key_uses',
    hostMay: ['insert', 'delete'],
    columns: [
      ...texts('fixed', 'prefix', 'organization_id'),
      // Null after the instance's record was deleted.
      ...texts('wish', 'instance_id'),
      { name: 'secret_sha256', type: 'bytes', merge: 'fixed' },
      { name: 'client_made', type: 'integer', merge: 'fixed', otherwise: 0 },
      ...texts('fixed', 'name'),
      ...integers('wish', 'requests_per_minute', 'tokens_per_minute', 'concurrency_max'),
      ...integers('fixed', 'created_at_ms'),
      ...integers('wish', 'expires_at_ms'),
      ...integers('first', 'revoked_at_ms'),
      { name: 'last_used_at_ms', type: 'integer', merge: 'latest', isSampled: true },
      ...texts('wish', 'models', 'aliases'),
      ...integers('wish', 'budget_nano_usd', 'budget_tokens'),
      ...texts('wish', 'short_budgets'),
    ],
  },
  {
    name: 'idempotency',
    key: ['organization_id', 'key'],
    hostMay: [],
    columns: [
      ...texts('fixed', 'organization_id', 'key'),
      { name: 'body_sha256', type: 'bytes', merge: 'wish' },
      ...integers('wish', 'response_status'),
      ...texts('wish', 'response_data'),
      ...integers('wish', 'created_at_ms'),
    ],
  },
  // One process alone increments a row, because `host_id` names the start of the daemon too. So the greater of two
  // values is the newer one, however late a report arrives and whatever copy the host was restored from.
  {
    name: 'usage_months',
    key: ['organization_id', 'month', 'key_prefix', 'host_id'],
    isSum: true,
    hostMay: ['insert', 'delete'],
    columns: [
      ...texts('fixed', 'organization_id', 'month', 'key_prefix', 'host_id'),
      ...integers('latest', 'requests', 'prompt_tokens', 'completion_tokens', 'cost_nano_usd'),
    ],
  },
  {
    name: 'usage_days',
    key: ['organization_id', 'key_prefix', 'day', 'model', 'host_id'],
    isSum: true,
    hostMay: ['insert', 'delete'],
    columns: [
      ...texts('fixed', 'organization_id', 'key_prefix', 'day', 'model', 'host_id'),
      ...integers('latest', 'requests', 'prompt_tokens', 'completion_tokens', 'cost_nano_usd', 'late_cost_nano_usd'),
    ],
  },
  {
    name: 'builds',
    key: ['id'],
    isHeld: true,
    hostMay: ['insert'],
    columns: [
      ...texts('fixed', 'id', 'organization_id', 'nonce', 'source_kind', 'source_name'),
      ...integers('fixed', 'source_bytes'),
      ...texts('fixed', 'source_sha256', 'repo_url', 'repo_ref', 'project_dir', 'toolchain'),
      ...integers('fixed', 'reproduce', 'created_at_ms'),
      ...texts('fixed', 'fetch_ca_sha256', 'crates_mirror', 'options', 'waivers'),
      ...texts('stage', 'host_id', 'state', 'error_type', 'error', 'result_sha256', 'provenance_sha256'),
      ...integers('stage', 'claims', 'started_at_ms', 'finished_at_ms', 'result_bytes'),
      ...texts('holder', 'source_host_id', 'vm_id', 'network', 'evidence', 'measurement'),
      ...integers('holder', 'simulated', 'ordered_at_ms', 'closed_at_ms', 'removed_at_ms', 'disk_bytes'),
    ],
  },
  {
    name: 'build_nonces',
    key: ['owner', 'nonce'],
    isLog: true,
    hostMay: ['insert'],
    columns: texts('fixed', 'owner', 'nonce', 'build_id'),
  },
  {
    name: 'build_reservations',
    key: ['vm_id'],
    isHeld: true,
    hostMay: ['insert', 'delete'],
    columns: [...texts('fixed', 'vm_id', 'host_id', 'organization_id'), ...integers('fixed', 'expires_at_ms')],
  },
]

export const REPLICA_TABLE_BY_NAME: ReadonlyMap<string, ReplicaTable> = new Map(
  REPLICA_TABLES.map(table => [table.name, table]),
)

/** A row in transit between the two databases: JSON values; bytes as `\x` and hexadecimal digits. */
export type WireRow = Readonly<Record<string, string | number | null>>

/** Returns the key of a row. */
export function rowKey({ key }: ReplicaTable, row: WireRow): WireRow {
  return Object.fromEntries(key.map(name => [name, row[name] ?? null]))
}

/** A row in its current state; null if it was deleted. */
export type RowChange = { readonly table: string; readonly key: WireRow; readonly row: WireRow | null }

/** SQL for both databases: how far along a status is. */
export function statusRank(expression: string): string {
  const ranks = STATUS_ORDER.map((status, rank) => `WHEN '${status}' THEN ${rank}`).join(' ')
  return `CASE ${expression} ${ranks} END`
}

/**
 * SQL for both databases: how far along a build's row is. It only returns to the queue with an incremented `claims`.
 */
export function buildStage(row: string): string {
  const ranks = BUILD_RANKS.map((state, rank) => `WHEN '${state}' THEN ${rank}`).join(' ')
  return `(${row}.claims * ${BUILD_RANKS.length + 1} + CASE ${row}.state ${ranks} ELSE ${BUILD_RANKS.length} END)`
}

/** States before the end of a build; all others are final. */
const BUILD_RANKS = ['queued', 'starting', 'running'] as const

/** A status never returns, so each occurs in a log at most once. */
const STATUS_ORDER = ['provisioning', 'ready', 'failed', 'terminating', 'terminated'] as const

function texts(merge: Merge, ...names: readonly string[]): Column[] {
  return names.map(name => ({ name, type: 'text', merge }))
}

function integers(merge: Merge, ...names: readonly string[]): Column[] {
  return names.map(name => ({ name, type: 'integer', merge }))
}
