// The gateway composed as in the appliance, in its own process, for proofs over many requests: store, keys, limits,
// budgets, prices, ledger. Arguments: a directory and the upstream's port. Reports over IPC. Effects: a port, a store.

import { heapStats } from 'bun:jsc'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { gatewaySettings } from '../../../src/appliance/inference.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { drawReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { keyDefaults, mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { createGatewayAuthenticate } from '../../../src/inference/keys/stored-keys.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { createInferenceService } from '../../../src/inference/service.ts'
import { loadUpstream } from '../../../src/inference/upstream/load-target.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization, setOrganizationBudget } from '../../../src/store/directory/organization.query.ts'
import { nonceStore } from '../../../src/store/ledger/nonce.query.ts'
import { type EnduranceKey, enduranceConfig, type Order, type Ready, type State } from './endurance.ts'
import { samplesOf } from './test-gateway.ts'

const [stateDir = '', port = '', keysText = '[]'] = process.argv.slice(2)
const verdict = parseConfig(enduranceConfig(Number(port)), 'endurance.toml')
if (!verdict.ok) throw new Error(JSON.stringify(verdict))
const { config } = verdict
const clock = systemClock
const log = createLogger({ level: 'error', sink: line => process.stderr.write(`${line}\n`), nowMs: clock.nowMs })
const store = openStore(join(stateDir, 'strongroom.db'))
const keys = (JSON.parse(keysText) as EnduranceKey[]).map(addKey)
const settings = gatewaySettings(config)
const metering = new Metering({ store: store.directory, clock, log, cost: createCost(config.inference.prices) })
const receiptKeys = drawReceiptKeys(systemRandom)
const service = createInferenceService({
  settings,
  upstreams: config.inference.upstreams.map(loadUpstream),
  inside: new Set(),
  authenticate: createGatewayAuthenticate({ db: store.directory.db, clock, log, defaults: keyDefaults(settings) }),
  offerSpan: () => {},
  metering: { record: record => metering.record(record), counts: () => metering.counts() },
  spent: metering,
  cost: () => metering.cost,
  nonces: nonceStore(store.ledger),
  mayDelete: null,
  workloads: {
    describe: () => {
      throw new Error('nobody asks here')
    },
  },
  keys: receiptKeys,
  tlsSpkiDigest: () => new Uint8Array(32),
  configurationDigest: new Uint8Array(32),
  workload: null,
  openEvidence: () => Promise.reject(new Error('nobody asks here')),
  clock,
  random: systemRandom,
  log,
})
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  idleTimeout: 255,
  development: false,
  fetch: (request, bun) => service.fetch(request, () => bun.requestIP(request)?.address ?? ''),
})
say({ url: `http://127.0.0.1:${server.port}`, keys, publicKeys: receiptKeys.publicKeys } satisfies Ready)
process.on('message', (order: Order) => void answer(order))

async function answer(order: Order): Promise<void> {
  metering.flush()
  if (order === 'flush') return say('flushed')
  // Connections and finalizers have their turns in between.
  for (let round = 0; round < 5; round += 1) {
    Bun.gc(true)
    await Bun.sleep(50)
  }
  say(state())
}

function state(): State {
  const samples = samplesOf(service.metrics.render())
  const of = (name: string) => samples.filter(sample => sample.name === name).reduce((sum, { value }) => sum + value, 0)
  const { heapSize, objectCount } = heapStats()
  return {
    running: service.running(),
    reserved: service.reserved().length,
    upstreamRunning: of('strongroom_upstream_requests_running'),
    waiting: of('strongroom_gateway_requests_queued'),
    lost: metering.counts().lost,
    heapBytes: heapSize,
    objects: objectCount,
    residentBytes: process.memoryUsage.rss(),
    descriptors: readdirSync('/proc/self/fd').length,
  }
}

function say(message: Ready | State | 'flushed'): void {
  process.send?.(message)
}

function addKey({ organizationId, organizationBudgetTokens, ...terms }: EnduranceKey): string {
  const { db } = store.directory
  const nowMs = clock.nowMs()
  insertOrganization(db, { id: organizationId, slug: organizationId, nowMs })
  setOrganizationBudget(db, organizationId, { budgetNanoUsd: null, budgetTokens: organizationBudgetTokens })
  const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
  const own = { instanceId: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null, nowMs }
  insertGatewayKey(db, { ...own, ...terms, organizationId, prefix, secretSha256 })
  return key
}
