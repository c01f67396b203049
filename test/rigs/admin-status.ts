// The answer of `strongroom status` of a host that serves: tests change what they are about.

import type { AdminStatus } from '../../src/contract/admin/admin.ts'

export const STATUS: AdminStatus = {
  version: '1',
  pid: 1,
  host_id: 'h',
  platform: 'tcg',
  evidence_simulated: true,
  tpm: 'swtpm',
  domain: 'agents.test',
  started_at: '2026-11-20T00:00:00.000Z',
  clock: { state: 'believed', now: '2026-11-20T00:00:00.000Z', ahead_s: 0, problem: null, remedy: null },
  builds: null,
  names: null,
  problems: [],
  listen: { instances: 'https://127.0.0.1:1', inference: null, builds: null, dns: null },
  tls: {
    source: 'local',
    expires_at: '2027-01-01T00:00:00.000Z',
    ca_file: '/ca.pem',
    former: null,
    certificates: [],
    acme: null,
  },
  operator_key: { digest: 'ab'.repeat(48), public_key: 'PEM' },
  collateral: null,
  organizations: 0,
  instances: { ready: 1 },
  vms: {},
  capacity: {
    memory_mib_used: 0,
    memory_mib_total: 1,
    vcpus_used: 0,
    vcpus_total: 1,
    addresses_used: 0,
    addresses_total: 1,
    addresses_resting: 0,
    next_address_free_at: null,
  },
  pool: { wanted: 0, warm: 0, booting: 0, lacking: null, last_failure: null, next_attempt_at: null },
  gateway: { placement: 'off', vm: null, state: null, problem: null, traces: null },
}
