// Documents of the operator's interface for a scripted console: a host with something in every corner.

import type { Static } from '@sinclair/typebox'
import type {
  AdminBuild,
  AdminGatewayKey,
  AdminInstance,
  AdminKey,
  AdminOrganization,
  AdminStatus,
} from '../../../src/contract/admin/admin.ts'
import type { AdminConsoleSession, AdminPasskey, SessionDocument } from '../../../src/contract/admin/console.ts'
import type { AdminCommand } from '../../../src/contract/admin/events.ts'
import type { FleetHost } from '../../../src/contract/admin/fleet.ts'
import type { AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import type { AdminLog, AdminLogEntries } from '../../../src/contract/admin/log.ts'
import { NO_QUOTAS } from '../../../src/contract/admin/organizations/quotas.ts'
import type { AdminUsage } from '../../../src/contract/admin/usage.ts'
import { at, nowMs, PROBLEM_LIST } from './problem-list.ts'

export { at, nowMs }

/** Text with everything that a guest may try: markup, a terminal's escapes, bidi overrides. */
export const hostileText =
  '<img src=x onerror="fetch(\'/stolen\')"><script>stolen()</script>\u001b[2J\u202egnp.exe\u0000'

export const SESSION: SessionDocument = {
  cursor: null,
  ...{ actor: 'ada', role: 'admin', by: 'link', began_at: at(600), ends_at: at(-42_000), idle_s: 1_800 },
  host_id: 'host-1',
  version: '0.1.0',
  services: { instances: true, inference: true, builds: true },
  fleet: true,
  passkeys: { rp_id: null, why: 'A passkey belongs to a DNS name: open the console by one of console.names.' },
}

export const PASSKEYS: readonly AdminPasskey[] = [
  {
    ...{ id: 'MFkwEwYHKoZIzj0CAQ', actor: 'ada', role: 'admin', name: 'laptop', rp_id: 'console.example', own: true },
    created_at: at(86_400 * 3),
    last_used_at: at(90),
  },
]

export const SESSIONS: readonly AdminConsoleSession[] = [
  { id: '0123456789abcdef', actor: 'ada', role: 'admin', by: 'link', began_at: at(600), ends_at: at(-42_000) },
]

export const BUSY_STATUS: AdminStatus = {
  version: '0.1.0',
  pid: 4_242,
  platform: 'tcg',
  evidence_simulated: true,
  tpm: 'swtpm',
  names: null,
  maintenance: null,
  backups: {
    state: 'old',
    last: { at: at(86_400 * 3), file: '/var/backups/strongroom/strongroom-20261123T031500Z.age', bytes: 41_943_040 },
    failure: null,
    nightly: true,
    problem: `the last is of ${at(86_400 * 3)}`,
    remedy: 'journalctl --unit strongroom-backup.service says why; `systemctl start strongroom-backup` tries again',
  },
  fleet: {
    ...{ database: 'postgres://rack-1@db.example/fleet', name: 'rack-1', is_reachable: true, since: at(86_400 * 3) },
    ...{ problem: null, has_lease: true, is_draining: false, epoch: 4 },
    ...{ peer_address: '192.0.2.1:7443', peers: [{ name: 'rack-2', is_reached: true, problem: null }] },
  },
  ready: true,
  problems: [...PROBLEM_LIST],
  operator_key: { digest: 'ab'.repeat(48), public_key: 'PEM' },
  collateral: null,
  host_id: 'host-1',
  domain: 'agents.example',
  started_at: at(86_400 * 3),
  clock: { state: 'believed', now: at(0), ahead_s: 0, problem: null, remedy: null },
  listen: {
    instances: 'https://10.0.0.1:8441',
    inference: 'https://10.0.0.1:8442',
    builds: 'https://10.0.0.1:8443',
    dns: '10.0.0.1:53',
    ...{ console: 'https://127.0.0.1:8444', metrics: null },
  },
  tls: {
    source: 'local',
    expires_at: at(-86_400 * 60),
    ca_file: '/var/lib/strongroom/ca/ca.pem',
    former: null,
    acme: null,
    certificates: [
      { name: 'server', expires_at: at(-86_400 * 60) },
      { name: 'authority', expires_at: at(-86_400 * 3000) },
      { name: 'guest', expires_at: at(-86_400 * 9) },
    ],
  },
  organizations: 3,
  instances: { ready: 12, provisioning: 1, failed: 2, terminated: 40 },
  vms: { running: 13, warm: 2 },
  capacity: {
    memory_mib_used: 52_224,
    memory_mib_total: 65_536,
    vcpus_used: 30,
    vcpus_total: 64,
    addresses_used: 15,
    addresses_total: 120,
    addresses_resting: 3,
    next_address_free_at: at(-200),
  },
  pool: { wanted: 3, warm: 2, booting: 1, lacking: null, last_failure: null, next_attempt_at: null },
  builds: {
    states: { running: 1, ok: 7, failed: 2 },
    wanted: 1,
    warm: 1,
    booting: 0,
    reserved: 1,
    lacking: null,
    disk_bytes: 734_003_200,
  },
  log: {
    size: 42,
    shown: 40,
    last_entry_at: at(3_000),
    waiting_since: at(3_600),
    witnesses: 1,
    problems: [
      {
        witness: 'witness.example',
        severe: false,
        detail: 'has not cosigned for an hour',
        remedy: 'ask its operator',
      },
    ],
  },
  gateway: {
    placement: 'vm',
    vm: '4f9d2c1e-6c1b-4f0e-9c39-0a9a5f6b7c8d',
    state: 'serving',
    problem: null,
    attested_upstreams: [
      { name: 'far-away', kind: 'snp', attested: false, last_good_at: at(7_200), age_s: 7_200, failures: [] },
    ],
    traces: null,
  },
}

export function fleetHost(name: string, more: Partial<FleetHost> = {}): FleetHost {
  return {
    id: `host-id-${name}`,
    name,
    state: 'serving',
    is_this_host: false,
    role: name,
    joined_at: at(86_400 * 20),
    draining_since: null,
    last_seen_at: at(1),
    platform: 'snp',
    places_free: 14,
    instances: 12,
    version: '0.1.0',
    schema: 2,
    clock_ahead_ms: 12,
    warm: 2,
    memory_mib_used: 52_224,
    memory_mib_total: 65_536,
    vcpus_used: 30,
    vcpus_total: 64,
    lacking: null,
    image: 'ab'.repeat(32),
    operator_key: 'ef'.repeat(48),
    domain: 'agents.example',
    peer_address: '192.0.2.1:7443',
    peer_key: 'cd'.repeat(32),
    is_reached: true,
    peer_problem: null,
    ...more,
  }
}

/** One of each kind. */
export const FLEET_HOSTS: readonly FleetHost[] = [
  fleetHost('rack-1', { is_this_host: true }),
  fleetHost('rack-2', { state: 'draining', draining_since: at(7_200), places_free: 0, instances: 0, version: '0.0.9' }),
  fleetHost('rack-3', { state: 'silent', last_seen_at: at(90), instances: 5, lacking: 'memory' }),
  fleetHost('rack-4', { lacking: hostileText, clock_ahead_ms: 4_200, places_free: 0 }),
]

export function organization(slug: string, more: Partial<AdminOrganization> = {}): AdminOrganization {
  return {
    slug,
    status: 'active',
    created_at: at(86_400 * 40),
    ...{ instances_living: 4, instances_failed: 1, keys_active: 2, quotas: NO_QUOTAS },
    budget_usd: '250.00',
    budget_tokens: null,
    month_cost_usd: '31.415926000',
    month_tokens: 1_234_567,
    ...more,
  }
}

export function instance(number: number, more: Partial<AdminInstance> = {}): AdminInstance {
  const name = number.toString(36).padStart(8, 'a')
  return {
    id: `id-${number}`,
    organization: 'acme',
    name,
    hostname: `${name}.acme.agents.example`,
    status: 'ready',
    agent: 'opencode',
    public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE ops@example.org',
    inference_mode: 'default_gateway',
    inference_model: 'strongroom-tiny',
    failure_code: null,
    failure_message: null,
    terminated_reason: null,
    egress_bytes: 1_288_490_188,
    egress_limit_bytes: 5_368_709_120,
    egress_observed_at: at(12),
    egress_block_applied_at: null,
    rescue_bytes: 0,
    created_at: at(3_600 + number),
    ready_at: at(3_500 + number),
    attested_at: at(3_510 + number),
    terminated_at: null,
    vm: { id: `vm-${number}`, state: 'running', address: '10.9.0.7', address_v6: null },
    ...more,
  }
}

export const EVENTS = [
  { id: 1, at: at(3_600), kind: 'instance.created', subject: 'id-1', detail: { organization: 'acme' } },
  { id: 2, at: at(3_500), kind: 'instance.ready', subject: 'id-1', detail: { host_key: hostileText } },
]

export const API_KEYS: readonly AdminKey[] = [
  {
    prefix: 'k3v9x2ab',
    name: null,
    organization: 'acme',
    scope: 'write',
    made_by: 'client',
    created_at: at(86_400 * 30),
    last_used_at: at(60),
    revoked_at: null,
  },
  {
    ...{ prefix: 'zz81m0qp', name: null },
    organization: 'acme',
    scope: 'read',
    made_by: 'host',
    created_at: at(86_400 * 35),
    last_used_at: null,
    revoked_at: at(86_400 * 2),
  },
]

export const GATEWAY_KEYS: readonly AdminGatewayKey[] = [
  {
    prefix: 'g4t3w4yk',
    name: null,
    organization: 'acme',
    instance: null,
    state: 'active',
    made_by: 'host',
    requests_per_minute: 60,
    tokens_per_minute: null,
    concurrency_max: null,
    expires_at: at(-86_400 * 60),
    models: ['llama-70b', 'strongroom-tiny'],
    aliases: [{ name: 'gpt-4o', model: 'llama-70b' }],
    budget_usd: '100',
    budget_tokens: null,
    month_cost_usd: '12.500000000',
    month_tokens: 834_112,
    created_at: at(86_400 * 20),
    last_used_at: at(5),
    revoked_at: null,
  },
]

export const USAGE: AdminUsage = {
  organization: 'acme',
  key_names: {},
  from: '2026-10-28',
  to: '2026-11-26',
  by: ['model'],
  rows: [
    {
      model: 'llama-70b',
      day: null,
      key: null,
      user: null,
      tags: null,
      requests: 812,
      prompt_tokens: 900_111,
      completion_tokens: 301_556,
      cost_usd: '31.000000000',
    },
    {
      model: 'strongroom-tiny',
      day: null,
      key: null,
      user: null,
      tags: null,
      requests: 91,
      prompt_tokens: 20_900,
      completion_tokens: 12_000,
      cost_usd: '0.415926000',
    },
  ],
  total: { requests: 903, prompt_tokens: 921_011, completion_tokens: 313_556, cost_usd: '31.415926000' },
}

export function build(number: number, more: Partial<AdminBuild> = {}): AdminBuild {
  const id = `4f9d2c1e-6c1b-4f0e-9c39-${number.toString(16).padStart(12, '0')}`
  return {
    id,
    organization: 'acme',
    state: 'ok',
    nonce: '00112233445566778899aabbccddeeff',
    source: {
      kind: 'git',
      name: 'https://git.example/acme/service.git',
      ref: 'v1.4.0',
      size_bytes: null,
      sha256: null,
    },
    project_dir: null,
    toolchain: 'cargo',
    options: '',
    reproduce: true,
    network: 'closed',
    measurement: 'ab'.repeat(48),
    simulated: true,
    result: { size_bytes: 8_400_000, sha256: 'cd'.repeat(32), removed_at: null },
    error_type: null,
    error: null,
    disk_bytes: 104_857_600,
    created_at: at(9_000 + number),
    started_at: at(8_990 + number),
    finished_at: at(8_000 + number),
    closed_at: at(7_990 + number),
    host: null,
    vm_id: `vm-build-${number}`,
    vm: null,
    ...more,
  }
}

export const GATEWAYS: AdminGatewayVms = {
  placement: 'vm',
  problem: null,
  gateways: [
    {
      vm: '4f9d2c1e-6c1b-4f0e-9c39-0a9a5f6b7c8d',
      state: 'serving',
      address: '10.9.0.2',
      since: at(86_400),
      current: true,
      workload_sha256: 'ef'.repeat(32),
      keys_revision: 12,
      requests_running: 3,
      usage_waiting: 0,
      usage_waiting_since: null,
      usage_booked: 10_411,
      problem: null,
      reason: null,
    },
  ],
}

export const COMMANDS: readonly AdminCommand[] = [
  {
    seq: 7,
    at: at(500),
    uid: 1001,
    gid: 1001,
    pid: 4242,
    actor: 'ada',
    role: 'admin',
    socket: 'console',
    operation: 'org.create',
    arguments: { slug: 'acme' },
    result: 'ok',
    ended_at: at(500),
    times: 1,
  },
  {
    seq: 8,
    at: at(300),
    uid: 1002,
    gid: 1002,
    pid: 4243,
    actor: 'bob',
    role: 'auditor',
    socket: 'admin',
    operation: 'instance.delete',
    arguments: { ref: 'acme/aaaaaaa1' },
    result: 'forbidden',
    ended_at: at(300),
    times: 4,
  },
]

export const LOG: AdminLog = {
  key: 'agents.example/log+12345678+AZPoJJSpv',
  size: 42,
  shown: 40,
  note: null,
  witnesses: [
    { name: 'witness.example', url: 'https://witness.example', size: 40, cosigned_at: at(3_600), problem: null },
  ],
}

export const LOG_ENTRIES: Static<typeof AdminLogEntries> = {
  entries: [
    {
      index: 40,
      at: at(4_000),
      entry: `{"format":"strongroom/log/v1","kind":"workload","sha256":"${'ef'.repeat(32)}"}`,
    },
    {
      index: 41,
      at: at(3_000),
      entry: `{"format":"strongroom/log/v1","kind":"image","measurement":"${'ab'.repeat(48)}"}`,
    },
  ],
}

/** Text of /metrics after so many scrapes. */
export function metricsText(scrape: number): string {
  const count = 900 + scrape * 40
  return [
    '# TYPE strongroom_gateway_requests_total counter',
    `strongroom_gateway_requests_total{gen_ai_request_model="llama-70b",upstream="near",http_response_status_code="200"} ${count}`,
    `strongroom_gateway_requests_total{gen_ai_request_model="llama-70b",upstream="near",http_response_status_code="502"} ${12 + scrape}`,
    `gen_ai_client_token_usage_sum{gen_ai_token_type="input"} ${count * 210}`,
    `gen_ai_client_token_usage_sum{gen_ai_token_type="output"} ${count * 80}`,
    `gen_ai_server_time_to_first_token_seconds_bucket{le="0.1"} ${Math.floor(count * 0.4)}`,
    `gen_ai_server_time_to_first_token_seconds_bucket{le="0.25"} ${Math.floor(count * 0.9)}`,
    `gen_ai_server_time_to_first_token_seconds_bucket{le="+Inf"} ${count}`,
    'strongroom_gateway_requests_running 3',
    'strongroom_gateway_requests_queued 0',
    'strongroom_upstream_healthy{upstream="near"} 1',
    'strongroom_upstream_healthy{upstream="far-away"} 0',
    'strongroom_upstream_requests_running{upstream="near"} 3',
    '',
  ].join('\n')
}
