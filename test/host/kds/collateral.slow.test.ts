// The collateral of SNP reports: kept fetched by itself, and found for a report. With simulated reports and a stand-in
// for AMD's service.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import { chipIdOf, SIMULATED_TCBS, simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { chainRequest, crlRequest, vcekRequest } from '../../../src/attest/kds/request.ts'
import { verifyEvidence } from '../../../src/attest/verify/evidence.ts'
import { createLogger } from '../../../src/base/log.ts'
import { CollateralKeeper } from '../../../src/host/kds/collateral.ts'
import { createKds, type KdsOptions } from '../../../src/host/kds/kds.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { type KdsServer, startKdsServer } from '../../rigs/kds-server.ts'

const product = 'genoa'
const vcek = vcekRequest({ product, chipId: chipIdOf(product), tcb: SIMULATED_TCBS[product] })
const chain = chainRequest(product, 'vcek')
const crl = crlRequest(product, 'vcek')
const minuteMs = 60_000
const hourMs = 60 * minuteMs

let server: KdsServer
let dir: string
let clock: ManualClock
let stopping: AbortController
let warnings: string[]

beforeAll(async () => {
  server = await startKdsServer(product)
})
afterAll(() => server[Symbol.asyncDispose]())
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'collateral-test-'))
  clock = createManualClock()
  stopping = new AbortController()
  warnings = []
  server.requests = []
  server.respond = server.serve
})
afterEach(() => {
  stopping.abort()
  rmSync(dir, { recursive: true })
})

function keeper(changes: Partial<KdsOptions> = {}): CollateralKeeper {
  const log = createLogger({ level: 'warn', sink: line => warnings.push(line), nowMs: clock.nowMs })
  const roots = [server.platform.authority.root]
  const { signal } = stopping
  const kds = createKds({
    baseUrl: server.url,
    cacheDir: dir,
    roots,
    clock,
    log,
    signal,
    send: fetchDirectly,
    timeoutMs: 30_000,
    ...changes,
  })
  return new CollateralKeeper({ kds, product, clock, log })
}

test('goal: the collateral of a report verifies it offline, and is fetched once for all reports of the chip', async () => {
  const { platform } = server
  const kept = keeper()
  for (const reportData of [new Uint8Array(64).fill(1), new Uint8Array(64).fill(2)]) {
    const report = await platform.report({ reportData })
    const found = await kept.forReport(report)
    if (!found.ok) throw new Error(found.reason)
    const { vek, chain, crl } = found.collateral
    const roots = [platform.authority.root]
    const evidence = { report, vek, chain: [...chain], crl, roots }
    const verdict = await verifyEvidence({ ...evidence, asOf: simulatedAsOf, requireCrl: true, policy: 'any' })
    expect(verdict.checks.filter(check => check.outcome === 'fail')).toEqual([])
    expect(verdict.simulated).toBe(true)
    expect(chain).toEqual([platform.authority.root.ask, platform.authority.root.ark])
  }
  expect(server.requests.sort()).toEqual([vcek.path, chain.path, crl.path].sort())
})

test('goal: reports that no VCEK of this host can belong to are refused without a request', async () => {
  const { platform } = server
  const kept = keeper()
  for (const [report, reason] of [
    [await platform.report({ signer: 'vlek' }), 'not signed by a VCEK (vlek)'],
    [await platform.report({ chipId: new Uint8Array(64) }), 'CHIP_ID is masked'],
    [await platform.report({ product: 'milan' }), 'milan, but genoa was named'],
    [new Uint8Array(1183), '1183 bytes'],
  ] as const) {
    expect(await kept.forReport(report)).toMatchObject({ ok: false, reason: expect.stringContaining(reason) })
  }
  expect(server.requests).toEqual([])
})

test('goal: a report that its chip did not sign gets no collateral, and its certificate is not stored', async () => {
  const { platform } = server
  const genuine = await platform.report()
  const forged = genuine.slice()
  forged[0x50] = 0xff // REPORT_DATA
  const unsigned = genuine.slice()
  unsigned.fill(0, 0x2a0)
  const kept = keeper({ limits: { vcekIntervalMs: 0 } })
  for (const report of [forged, unsigned]) {
    const found = await kept.forReport(report)
    expect(found).toMatchObject({
      ok: false,
      reason: expect.stringContaining('the chip that it names did not sign it'),
    })
  }
  expect(readdirSync(dir)).not.toContain(vcek.file)
  // At the same time as a genuine one, which joins its request and has the certificate stored.
  const both = await Promise.all([kept.forReport(forged), kept.forReport(genuine)])
  expect(both.map(({ ok }) => ok)).toEqual([false, true])
  expect(readdirSync(dir)).toContain(vcek.file)
  expect(await kept.forReport(forged)).toMatchObject({ ok: false })
})

test('goal: a report of another TCB gets no collateral of this one, and the failure names the missing file', async () => {
  const tcb = { ...SIMULATED_TCBS[product], microcode: 90 }
  const found = await keeper().forReport(await server.platform.report({ tcb }))
  const { file } = vcekRequest({ product, chipId: chipIdOf(product), tcb })
  expect(found).toMatchObject({ ok: false, reason: expect.stringContaining(join(dir, file)) })
})

test('goal: chain and CRL are fetched at start without a report, and the CRL again every six hours', async () => {
  void keeper().run(stopping.signal)
  await clock.sleepers(1)
  expect(server.requests.sort()).toEqual([chain.path, crl.path].sort())
  expect(readdirSync(dir).sort()).toEqual([chain.file, crl.file].sort())
  server.requests = []
  expect(clock.pending()).toEqual([6 * hourMs])
  clock.advance(6 * hourMs)
  await clock.sleepers(1)
  expect(server.requests).toEqual([crl.path])
  expect(warnings).toEqual([])
})

test('goal: without the service it tries again with growing pauses, says what to do, and recovers by itself', async () => {
  server.respond = () => new Response('', { status: 503 })
  void keeper().run(stopping.signal)
  for (const pauseMs of [1, 2, 4, 8, 16, 32, 60, 60].map(minutes => minutes * minuteMs)) {
    await clock.sleepers(1)
    expect(clock.pending()).toEqual([pauseMs])
    clock.advance(pauseMs)
  }
  await clock.sleepers(1)
  expect(warnings[0]).toContain(join(dir, chain.file))
  expect(warnings[0]).toContain('kds.base_url')
  server.respond = server.serve
  clock.advance(60 * minuteMs)
  await clock.sleepers(1)
  expect(clock.pending()).toEqual([6 * hourMs])
  expect(readdirSync(dir).sort()).toEqual([chain.file, crl.file].sort())
})

test('goal: a service that says how long to wait is not asked sooner', async () => {
  server.respond = () => new Response('', { status: 429, headers: { 'Retry-After': '3000' } })
  void keeper({ limits: { waitMsMax: 0 } }).run(stopping.signal)
  await clock.sleepers(1)
  expect(clock.pending()).toEqual([3_000_000])
})

test('goal: files that an operator provides serve without any service', async () => {
  const report = await server.platform.report()
  await keeper().forReport(report)
  server.requests = []
  const offline = keeper({ baseUrl: null })
  expect(await offline.forReport(report)).toMatchObject({ ok: true })
  void offline.run(stopping.signal)
  await clock.sleepers(1)
  expect(server.requests).toEqual([])
  expect(warnings).toEqual([])
  rmSync(join(dir, crl.file))
  expect(await offline.forReport(report)).toMatchObject({
    ok: false,
    reason: expect.stringMatching(new RegExp(`kds.base_url is empty .*${crl.file}`)),
  })
})

test('goal: stopping does not wait for a service that does not respond', async () => {
  const { promise: never, resolve: end } = Promise.withResolvers<void>()
  server.respond = () => never.then(() => new Response(''))
  const running = keeper({ timeoutMs: 120_000 }).run(stopping.signal)
  while (server.requests.length === 0) await Bun.sleep(5)
  const startedMs = performance.now()
  stopping.abort()
  await running
  end()
  expect(performance.now() - startedMs).toBeLessThan(60_000)
  expect(warnings).toEqual([])
})
