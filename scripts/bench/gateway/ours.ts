// The whole gateway as the appliance puts it together: accounts in a real SQLite, limits, validation, ledger and
// metrics on. Run by gateway.bench.ts with OursSettings as JSON; writes its port and a key.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { SINGLE_HOST_LINK } from '../../../src/appliance/fleet/directory.ts'
import { composeShares } from '../../../src/appliance/fleet/shares.ts'
import { composeMetering } from '../../../src/appliance/gateway.ts'
import { composeInference } from '../../../src/appliance/inference.ts'
import { ownStarter } from '../../../src/appliance/starter/client.ts'
import { assert } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { openGate } from '../../../src/upgrade/gate.ts'
import { createClockGuard } from '../../rigs/clock-guard.ts'
import { nobodyLogs } from '../../rigs/transparency.ts'
import { joinFleet } from './fleet-store.ts'
import { benchModel, type OursSettings } from './wire.ts'

const { stateDir, stubPort, listener, fleetDatabase }: OursSettings = JSON.parse(process.argv[2] ?? '')
const pair = listener?.pair ?? null
const read = (file: string | undefined) => (file === undefined ? '' : readFileSync(file, 'utf8'))
const current = {
  cert: read(pair?.certFile),
  key: read(pair?.keyFile),
  notBeforeMs: 0,
  notAfterMs: 0,
  fingerprint: '',
  names: '',
}
const tls = { current: () => current, guestCertificate: () => current.cert, onChange: () => {} }

/** Limits as high as they go, so that they are kept and never met; the rest as by default. */
const verdict = parseConfig(
  `
[inference]
key_requests_per_minute = 1000000
key_tokens_per_minute = 1000000000
key_concurrency_max = 65536
placement = "host"
processes = ${listener?.processes ?? 1}
[[inference.upstreams]]
name = "stub"
url = "http://127.0.0.1:${stubPort}/v1"
models = ["${benchModel}"]
concurrency_max = 65536
[[inference.prices]]
model = "${benchModel}"
prompt_usd_per_million = "0.15"
completion_usd_per_million = "0.60"
`,
  'bench.toml',
)
assert(verdict.ok, 'the configuration of the benchmark is valid')
const { config } = verdict
const clock = systemClock
const log = createLogger({ level: 'warn', sink: line => process.stderr.write(`${line}\n`), nowMs: clock.nowMs })
const ownStore = openStore(join(stateDir, 'strongroom.db'))
const { store, fleet, link } =
  fleetDatabase === null
    ? { store: ownStore, fleet: { database: null }, link: SINGLE_HOST_LINK }
    : await joinFleet({ store: ownStore, database: fleetDatabase, clock, log })
const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
const own = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
await store.directory.change(tx => {
  insertOrganization(tx, { id: 'bench', slug: 'bench', nowMs: clock.nowMs() })
  insertGatewayKey(tx, {
    ...own,
    prefix,
    secretSha256,
    organizationId: 'bench',
    instanceId: null,
    nowMs: clock.nowMs(),
  })
})
const metering = composeMetering({ config, store, stateDir, clock, log })
const inference = await composeInference({
  ...nobodyLogs,
  gate: openGate,
  starter: ownStarter,
  config,
  stateDir,
  store,
  // Evidence is not asked for here, and a host that cannot have any prepares none.
  tls,
  platform: 'snp',
  simulatedPlatform: () => Promise.reject(new Error('nobody asks here')),
  capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
  metering,
  clock,
  clockGuard: createClockGuard(clock),
  random: systemRandom,
  log,
  shares: composeShares({ fleet, link, config, store, random: systemRandom, log }),
})
inference.start()
const listen = { hostname: '127.0.0.1', port: 0 }
const server =
  listener === null
    ? Bun.serve({
        ...listen,
        idleTimeout: 255,
        development: false,
        fetch: (request, socket) => inference.fetch(request, () => socket.requestIP(request)?.address ?? ''),
      })
    : await inference.listen({ listen, tls: pair === null ? null : tls, guestName: 'guests.test' })
process.stdout.write(`${server.port} ${key}\n`)
process.on('SIGTERM', async () => {
  await metering.stop()
  store.close()
  process.exit(0)
})
