// The admin interface over one organization with one instance, whose firewall is a counter: for operators' egress
// commands. Effects: a database in memory.

import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { offeredModels } from '../../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { createAdmin } from '../../../src/operator/api.ts'
import type { AdminDeps } from '../../../src/operator/deps.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertInstance } from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../admin.ts'

export const nowMs = Date.parse('2026-11-20T12:00:00.000Z')
export const vmId = '00000001-0000-4000-8000-000000000000'

/** The instance is `acme/abcd2345`. Its VM waits until `run` says otherwise. */
export function egressAdmin(
  changes: Partial<
    Pick<
      AdminDeps,
      | 'clock'
      | 'gateway'
      | 'administrators'
      | 'log'
      | 'removeOrganization'
      | 'console'
      | 'status'
      | 'fleet'
      | 'testAlerts'
      | 'vmUsage'
    >
  > = {},
  store = openStore(':memory:'),
) {
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs })
  insertVm(store.ledger.db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
  insertInstance(store.directory.db, {
    id: 'i1',
    hostId: store.hostId,
    organizationId: 'o1',
    name: 'abcd2345',
    hostname: 'h',
    agent: 'a',
    publicKey: 'k',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
    vmId,
    nowMs,
  })
  const firewall = { applied: 0, failure: null as Error | null }
  const notAskedHere = () => {
    throw new Error('these tests ask for nothing of this kind')
  }
  const admin = createAdmin({
    ...NO_ADMINISTRATORS,
    store,
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    random: systemRandom,
    log: silentLogger,
    clock: { ...systemClock, nowMs: () => nowMs },
    deleteInstance: notAskedHere,
    cancelBuild: null,
    gateway: 'off' as const,
    status: notAskedHere,
    clockGuard: createClockGuard(systemClock),
    leaks: notAskedHere,
    collectors: [],
    consoleDir: notAskedHere,
    vm: () => null,
    applyEgressLimits: async () => {
      firewall.applied += 1
      if (firewall.failure !== null) throw firewall.failure
    },
    ...changes,
  })
  const raise = async (body: Record<string, unknown>, ref = 'acme/abcd2345') => {
    const terms = { to_bytes: null, by_bytes: null, reason: null, operator: 'alice', ...body }
    const url = `http://admin/instance/egress-limit?ref=${ref}`
    const headers = { 'content-type': 'application/json' }
    const response = await asRoot(admin)(new Request(url, { method: 'POST', headers, body: JSON.stringify(terms) }))
    const answer = (await response.json()) as Record<string, unknown>
    const problem = (answer.error ?? {}) as { code?: string; param?: string; message?: string }
    return { status: response.status, limit: answer.egress_limit_bytes, ...problem }
  }
  const run = () => moveVm(store.ledger.db, { id: vmId, from: 'waiting', to: 'running', nowMs })
  const limit = () => vmById(store.ledger.db, vmId)?.egressLimitBytes
  const events = () =>
    listEvents(store.ledger.db, { subject: 'i1', limit: 10 }).map(({ kind, detail }) => [kind, detail])
  return { store, admin, firewall, raise, run, limit, events }
}
