// The gateway as the appliance puts it together: what goes on in it besides requests.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { startUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { nobodyLogs } from '../../scripts/rigs/transparency.ts'
import { until } from '../../scripts/rigs/until.ts'
import { composeInference } from '../../src/appliance/inference.ts'
import { createSimulatedPlatform } from '../../src/appliance/simulated-platform.ts'
import { ownStarter } from '../../src/appliance/starter/client.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { openSimulatedHost } from '../../src/host/simulated-host.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { UnavailableFault } from '../../src/http/limited.ts'
import { readPair } from '../../src/http/pair.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import type { UsageRecord } from '../../src/inference/metering/types.ts'
import { openStore } from '../../src/store/db.ts'
import { insertGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { findUsage, prepareUsageAppend } from '../../src/store/directory/usage/usage.query.ts'
import { openGate } from '../../src/upgrade/gate.ts'
import { callerOf } from '../rigs/gateway/keys.ts'
import { startOtlpReceiver } from '../rigs/gateway/otlp-receiver.ts'

const dayMs = 24 * 60 * 60 * 1000

function usageOf(id: string): UsageRecord {
  const tokens = { prompt: 1, completion: 1 }
  const said = { model: 'm', upstream: 'far', tokens, tokensSource: 'reported', outcome: 'completed' } as const
  return { id, atMs: 1, caller: callerOf(), ...said }
}

test('retention', async () => {
  // Goal: from its start on the gateway removes usage that is older than the configuration says, and nothing younger.
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-inference-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(stateDir, { recursive: true }))
  const store = openStore(join(stateDir, 'strongroom.db'))
  undo.defer(() => store.close())
  const nowMs = systemClock.nowMs()
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs })
  const row = {
    organizationId: 'o1',
    keyPrefix: 'abcdefgh',
    instanceId: null,
    model: 'm',
    upstream: 'u',
    promptTokens: 1,
    completionTokens: 1,
    costNanoUsd: 1,
    outcome: 'completed' as const,
    tokensSource: 'reported' as const,
    endUser: null,
    tags: null,
    cachedTokens: 0,
  }
  const old = { ...row, id: 'old', atMs: nowMs - 71 * dayMs }
  const young = { ...row, id: 'young', atMs: nowMs - 69 * dayMs }
  prepareUsageAppend(store.directory.db)([old, young])
  const verdict = parseConfig('[inference]\nusage_retention_days = 70\n', 'test.toml')
  if (!verdict.ok) throw new Error('the configuration is valid')
  const metering = new Metering({ store: store.directory, clock: systemClock, log: silentLogger, cost: () => 0n })
  undo.defer(() => metering.stop())
  const inference = await composeInference({
    ...nobodyLogs,
    gate: openGate,
    starter: ownStarter,
    config: verdict.config,
    stateDir,
    store,
    // Evidence is not asked for here, and a host that cannot have any prepares none.
    tls: {
      current: () => ({ cert: '', key: '', notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
      guestCertificate: () => '',
      onChange: () => {},
    },
    platform: 'snp',
    simulatedPlatform: () => Promise.reject(new Error('nobody asks here')),
    capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
    metering,
    clock: systemClock,
    clockGuard: createClockGuard(systemClock),
    random: systemRandom,
    log: silentLogger,
  })
  undo.defer(inference.stop)
  inference.start()
  await until('the old row is gone', 60_000, () => findUsage(store.directory.db, 'old') === null)
  expect(findUsage(store.directory.db, 'young')).toEqual(young)
})

test('traces', async () => {
  // Goal: a request's spans reach the configured receiver with the file's headers, even if the daemon stops at once.
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-inference-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(stateDir, { recursive: true }))
  const store = openStore(join(stateDir, 'strongroom.db'))
  undo.defer(() => store.close())
  const receiver = await startOtlpReceiver()
  undo.defer(receiver.stop)
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  writeFileSync(join(stateDir, 'headers'), 'x-scope-orgid: tenant-1\n')
  const verdict = parseConfig(
    [
      ...['[[inference.upstreams]]', 'name = "far"', `url = "${upstream.url}"`, 'models = ["m"]'],
      ...['[inference.traces]', `endpoint = "${receiver.url}"`, `headers_file = "${join(stateDir, 'headers')}"`],
      // Longer than the test: what waits goes out at the end.
      'interval_ms = 60000',
    ].join('\n'),
    'test.toml',
  )
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
  insertGatewayKey(store.directory.db, {
    organizationId: 'o1',
    instanceId: null,
    requestsPerMinute: null,
    tokensPerMinute: null,
    concurrencyMax: null,
    expiresAtMs: null,
    nowMs: 1,
    prefix,
    secretSha256,
  })
  // Nothing is written by itself: what waits is the test's to decide.
  const clock = createManualClock()
  const metering = new Metering({ store: store.directory, clock, log: silentLogger, cost: () => 0n })
  undo.defer(() => metering.stop())
  let isOpen = false
  const inference = await composeInference({
    ...nobodyLogs,
    gate: {
      admitChange: () => {
        if (!isOpen) throw new UnavailableFault('an upgrade is on trial', 5_000)
      },
    },
    starter: ownStarter,
    config: verdict.config,
    stateDir,
    store,
    metering,
    log: silentLogger,
    platform: 'snp',
    tls: {
      current: () => ({ cert: '', key: '', notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
      guestCertificate: () => '',
      onChange: () => {},
    },
    simulatedPlatform: () => Promise.reject(new Error('nobody asks here')),
    capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
    clock: systemClock,
    clockGuard: createClockGuard(systemClock),
    random: systemRandom,
  })
  inference.start()
  // Each answer is a row of usage: none while an upgrade may still go back.
  for (const path of ['/v1/models', '/v1/usage', '/v1/chat/completions']) {
    const headers = { host: 'gateway.test', authorization: `Bearer ${key}` }
    const method = path.endsWith('completions') ? 'POST' : 'GET'
    const refused = await inference.fetch(
      new Request(`http://gateway.test${path}`, { method, headers }),
      () => '127.0.0.1',
    )
    expect([path, refused.status]).toEqual([path, 503])
  }
  isOpen = true
  const chat = () =>
    inference.fetch(
      new Request('http://gateway.test/v1/chat/completions', {
        method: 'POST',
        headers: { host: 'gateway.test', authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
      }),
      () => '127.0.0.1',
    )
  // Nor where so many wait for the disk that its own might be lost.
  for (let i = 0; i < 10_000; i += 1) metering.record(usageOf(`r${i}`))
  const full = await chat()
  expect([full.status, await full.text()]).toEqual([503, expect.stringContaining('Usage cannot be recorded')])
  metering.flush()
  const response = await chat()
  expect(response.status).toBe(200)
  expect([receiver.spans.length, inference.traces?.counts().waiting]).toEqual([0, 2])
  await inference.stop()
  expect(receiver.problems).toEqual([])
  expect(receiver.spans.map(span => span.name)).toEqual(['chat m', 'chat m'])
  expect(receiver.seen[0]?.headers['x-scope-orgid']).toBe('tenant-1')
  const metrics = inference.collectors.map(collector => collector.render()).join('')
  expect(metrics).toContain('strongroom_trace_spans_exported_total 2\n')
})

test('attestation after a start that could not write', async () => {
  // Goal: the evidence source recovers once its obstacle at the start, such as a full disk, is gone.
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-inference-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(stateDir, { recursive: true }))
  const { nowMs } = systemClock
  // Small keys of a platform that exists already: to make new ones takes seconds.
  await openSimulatedHost({ stateDir, nowMs, random: systemRandom, modulusBits: 2048 })
  const rootFile = join(stateDir, 'simulator/root.pem')
  rmSync(rootFile)
  mkdirSync(rootFile)
  const store = openStore(join(stateDir, 'strongroom.db'))
  undo.defer(() => store.close())
  const metering = new Metering({ store: store.directory, clock: systemClock, log: silentLogger, cost: () => 0n })
  undo.defer(() => metering.stop())
  const authority = await openAuthority({ kind: 'clients', stateDir, nowMs, names: ['a.test'], random: systemRandom })
  const issued = await authority.issue(['a.test'], 30)
  const verdict = readPair(issued.cert, issued.key)
  if (!verdict.ok) throw new Error(verdict.reason)
  const { pair } = verdict
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => lines.push(line), nowMs })
  const inference = await composeInference({
    ...nobodyLogs,
    gate: openGate,
    starter: ownStarter,
    config: defaultConfig(),
    stateDir,
    store,
    tls: { current: () => pair, guestCertificate: () => pair.cert, onChange: () => {} },
    platform: 'tcg',
    simulatedPlatform: createSimulatedPlatform({ stateDir, nowMs, random: systemRandom, modulusBits: 2048 }),
    capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
    metering,
    clock: systemClock,
    clockGuard: createClockGuard(systemClock),
    random: systemRandom,
    log,
  })
  undo.defer(inference.stop)
  let asked = 0
  const ask = async () => {
    // From another address each time: the limit per address is not what this is about.
    asked += 1
    const address = `10.0.${asked >> 8}.${asked & 255}`
    const nonce = Buffer.from(systemRandom(32)).toString('base64url')
    const request = new Request(`https://a.test/attestation?nonce=${nonce}`)
    return (await inference.fetch(request, () => address)).status
  }
  const told = (words: string) => lines.some(line => line.includes(words))
  inference.start()
  await until('the failure is told', 60_000, () => told('the evidence source cannot be prepared'))
  expect(await ask()).toBe(503)
  rmSync(rootFile, { recursive: true })
  // There is no worker here, so that evidence stays refused; but for that reason, and no longer for want of a source.
  await until('the evidence source is there', 60_000, async () => {
    expect(await ask()).toBe(503)
    return told('inference-worker has not been admitted yet')
  })
})
