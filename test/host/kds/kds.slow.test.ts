// The key distribution service, as a stand-in on 127.0.0.1 with a simulated platform's certificates: AMD's own is
// never asked.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import {
  chipIdOf,
  SIMULATED_TCBS,
  type SimulatedPlatform,
  simulatedPlatform,
  vekValidity,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { chainRequest, crlRequest, vcekRequest } from '../../../src/attest/kds/request.ts'
import { issueSimulatedCrl, issueSimulatedVcek } from '../../../src/attest/simulator/certificates.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createKds, type Kds, type KdsOptions } from '../../../src/host/kds/kds.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { reissue } from '../../rigs/attest/forged-chain.ts'
import { type KdsServer, type Respond, startKdsServer } from '../../rigs/kds-server.ts'

const product = 'genoa'
const wanted = { product, chipId: chipIdOf(product), tcb: SIMULATED_TCBS[product] } as const
const tree = 'vcek'

let server: KdsServer
let platform: SimulatedPlatform
let crl: Uint8Array
let serve: Respond
let dir: string
let clock: ManualClock

beforeAll(async () => {
  server = await startKdsServer(product)
  platform = server.platform
  crl = server.crl
  serve = server.serve
})
afterAll(() => server[Symbol.asyncDispose]())
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'kds-test-'))
  clock = createManualClock()
  server.requests = []
  server.respond = serve
})
afterEach(() => rmSync(dir, { recursive: true }))

/** VCEKs are stored as after a report of theirs. */
function start(changes: Partial<KdsOptions> = {}): Kds {
  const kds = createKds({
    baseUrl: server.url,
    cacheDir: dir,
    roots: [platform.authority.root],
    clock,
    log: silentLogger,
    send: fetchDirectly,
    timeoutMs: 30_000,
    ...changes,
  })
  return {
    ...kds,
    vcek: async chip => {
      const result = await kds.vcek(chip)
      if (result.ok && result.from === 'network') kds.storeVcek(chip, result.bytes)
      return result
    },
  }
}

/** Another TCB of the same chip: another VCEK. */
function newer(microcode: number) {
  return { ...wanted, tcb: { ...wanted.tcb, microcode } }
}

async function serveNewer(): Promise<void> {
  const made = new Map<string, Uint8Array>()
  for (const microcode of [90, 91, 92, 93]) {
    const { tcb, chipId } = newer(microcode)
    made.set(String(microcode), await issueSimulatedVcek(platform.authority, { tcb, chipId, validity: vekValidity }))
  }
  server.respond = request => {
    const der = made.get(new URL(request.url).searchParams.get('ucodeSPL') ?? '')
    return der === undefined ? serve(request) : new Response(new Uint8Array(der))
  }
}

describe('the cache', () => {
  test('once per chip and TCB, after a restart too', async () => {
    // Goal: the service is server.requests once for each thing; a second process finds it on disk.
    const first = start()
    expect(await first.vcek(wanted)).toEqual({ ok: true, bytes: platform.vcek, from: 'network' })
    expect(await first.vcek(wanted)).toEqual({ ok: true, bytes: platform.vcek, from: 'cache' })
    expect(await first.chain(product, tree)).toMatchObject({ ok: true, from: 'network' })
    const second = start()
    expect(await second.vcek(wanted)).toMatchObject({ ok: true, from: 'cache' })
    expect(await second.chain(product, tree)).toMatchObject({ ok: true, from: 'cache' })
    expect(server.requests).toEqual([vcekRequest(wanted).path, chainRequest(product, tree).path])
    expect(readdirSync(dir).sort()).toEqual([chainRequest(product, tree).file, vcekRequest(wanted).file].sort())
  })

  test('a damaged file is fetched again', async () => {
    // Goal: kept files are verified before use; a damaged file is fetched again, an oversized one not even read.
    await start().vcek(wanted)
    const path = join(dir, vcekRequest(wanted).file)
    for (const damage of [
      platform.vcek.with(700, (platform.vcek[700] ?? 0) ^ 1),
      new Uint8Array(0),
      new Uint8Array(1_000_000),
    ]) {
      writeFileSync(path, damage)
      clock.advance(60_000)
      expect(await start().vcek(wanted)).toMatchObject({ ok: true, from: 'network' })
      expect(new Uint8Array(readFileSync(path))).toEqual(new Uint8Array(platform.vcek))
    }
  })

  test('many calls at once make one request', async () => {
    // Goal: many who want the same thing at once make one request, and all get what it returned.
    const kds = start()
    const all = await Promise.all(Array.from({ length: 20 }, () => kds.vcek(wanted)))
    expect(all.every(({ ok }) => ok)).toBe(true)
    expect(server.requests).toEqual([vcekRequest(wanted).path])
  })

  test('a CRL for an hour, and longer without a network', async () => {
    // Goal: a CRL is fetched again after an hour and after a restart; offline the kept one serves until it ends.
    const kds = start()
    expect(await kds.crl(product, tree)).toMatchObject({ ok: true, from: 'network' })
    clock.advance(3_599_000)
    expect(await kds.crl(product, tree)).toMatchObject({ ok: true, from: 'cache' })
    clock.advance(2_000)
    expect(await kds.crl(product, tree)).toMatchObject({ ok: true, from: 'network' })
    expect(await start().crl(product, tree)).toMatchObject({ ok: true, from: 'network' })
    server.respond = () => new Response('', { status: 503 })
    expect(await start().crl(product, tree)).toMatchObject({ ok: true, from: 'cache' })
    clock.set(Date.UTC(2026, 11, 2))
    expect(await start().crl(product, tree)).toMatchObject({ ok: false, kind: 'unreachable' })
    expect(server.requests.length).toBe(5)
  })
})

describe('the rate limit', () => {
  test('one VCEK in ten seconds', async () => {
    // Goal: VCEKs go out ten seconds apart, whoever asks; chains and CRLs need not wait.
    await serveNewer()
    const kds = start()
    expect(await kds.vcek(wanted)).toMatchObject({ ok: true })
    const later = kds.vcek(newer(90))
    await clock.sleepers(1)
    expect(clock.pending()).toEqual([10_000])
    expect(await kds.crl(product, tree)).toMatchObject({ ok: true })
    expect(server.requests).toEqual([vcekRequest(wanted).path, crlRequest(product, tree).path])
    await clock.elapse(9_999)
    expect(server.requests.length).toBe(2)
    await clock.elapse(1)
    expect(await later).toMatchObject({ ok: true, from: 'network' })
    expect(server.requests.at(-1)).toBe(vcekRequest(newer(90)).path)
  })

  test('a queue with an end', async () => {
    // Goal: a caller that would wait too long learns at once how long, and nothing is sent.
    await serveNewer()
    const kds = start({ limits: { waitMsMax: 15_000, waitersMax: 1 } })
    expect(await kds.vcek(wanted)).toMatchObject({ ok: true })
    const second = kds.vcek(newer(90))
    await clock.sleepers(1)
    expect(await kds.vcek(newer(91))).toMatchObject({ ok: false, kind: 'rate-limited', retryAfterMs: 10_000 })
    await clock.elapse(10_000)
    expect(await second).toMatchObject({ ok: true })
    const strict = start({ limits: { waitMsMax: 5_000 }, cacheDir: join(dir, 'strict') })
    expect(await strict.vcek(wanted)).toMatchObject({ ok: true })
    expect(await strict.vcek(newer(92))).toMatchObject({ ok: false, kind: 'rate-limited', retryAfterMs: 10_000 })
    expect(server.requests.length).toBe(3)
  })

  test('429 with and without Retry-After', async () => {
    // Goal: the service's own word is kept to, by every kind of request, and three refusals are enough.
    let refusals = 1
    server.respond = request => {
      refusals -= 1
      return refusals < 0 ? serve(request) : new Response('', { status: 429, headers: { 'Retry-After': '25' } })
    }
    const kds = start()
    const vcek = kds.vcek(wanted)
    await clock.sleepers(1)
    const crlResult = kds.crl(product, tree)
    await clock.sleepers(2)
    expect(clock.pending()).toEqual([25_000, 25_000])
    await clock.elapse(25_000)
    expect(await vcek).toMatchObject({ ok: true })
    expect(await crlResult).toMatchObject({ ok: true })
    refusals = 3
    const refused = start({ cacheDir: join(dir, 'other') }).vcek(wanted)
    await clock.sleepers(1)
    await clock.elapse(25_000)
    await clock.sleepers(1)
    await clock.elapse(25_000)
    expect(await refused).toMatchObject({ ok: false, kind: 'rate-limited', retryAfterMs: 25_000 })
    server.respond = () => new Response('', { status: 429 })
    const silent = await start({ cacheDir: join(dir, 'third'), limits: { waitMsMax: 0 } }).vcek(wanted)
    expect(silent).toMatchObject({ ok: false, kind: 'rate-limited', retryAfterMs: 10_000 })
  })

  test('an absurd Retry-After', async () => {
    // Goal: no header of a server's stops us for longer than an hour.
    server.respond = () => new Response('', { status: 429, headers: { 'Retry-After': '999999999' } })
    const kds = start()
    expect(await kds.vcek(wanted)).toMatchObject({ ok: false, kind: 'rate-limited', retryAfterMs: 3_600_000 })
    server.respond = serve
    clock.advance(3_600_000)
    expect(await kds.vcek(wanted)).toMatchObject({ ok: true })
  })
})

describe('bad responses', () => {
  test('a VCEK that does not verify', async () => {
    // Goal: what does not verify for this chip and TCB is neither handed out nor kept.
    const { authority } = platform
    const { tcb, chipId } = wanted
    const stranger = await simulatedPlatform('milan')
    const bodies = [
      new Uint8Array(0),
      new Uint8Array(1000).fill(0x30),
      platform.vcek.with(700, (platform.vcek[700] ?? 0) ^ 1),
      platform.vcek.subarray(0, 900),
      platform.vlek,
      stranger.vcek,
      await issueSimulatedVcek(authority, { tcb, chipId: chipId.with(5, 0xaa), validity: vekValidity }),
      await issueSimulatedVcek(authority, { tcb: newer(90).tcb, chipId, validity: vekValidity }),
    ]
    for (const body of bodies) {
      server.respond = request => (request.url.includes('blSPL') ? new Response(new Uint8Array(body)) : serve(request))
      expect(await start({ limits: { vcekIntervalMs: 0 } }).vcek(wanted)).toMatchObject({ ok: false, kind: 'invalid' })
      expect(readdirSync(dir).filter(name => name.startsWith('vcek'))).toEqual([])
    }
  })

  test('a chain or a CRL that does not verify', async () => {
    // Goal: a chain without the trusted ARK or with an unsigned intermediate, and a foreign or expired CRL, are
    // refused.
    const { root, keys } = platform.authority
    const stranger = await simulatedPlatform('milan')
    const forged = await reissue(root.ask, { signingKey: keys.asvk.privateKey })
    const pem = (der: Uint8Array) => toPem(der, 'CERTIFICATE')
    for (const body of [
      '',
      'x',
      pem(root.ask),
      pem(root.ark),
      pem(root.ark) + pem(root.asvk),
      pem(forged) + pem(root.ark),
    ]) {
      server.respond = () => new Response(body)
      expect(await start().chain(product, tree)).toMatchObject({ ok: false, kind: 'invalid' })
    }
    const span = { thisUpdate: new Date('2020-01-01T00:00:00Z'), nextUpdate: new Date('2021-01-01T00:00:00Z') }
    const old = await issueSimulatedCrl(platform.authority, { ...span, revoked: [] })
    const others = await issueSimulatedCrl(stranger.authority, {
      ...span,
      nextUpdate: vekValidity.notAfter,
      revoked: [],
    })
    for (const body of [new Uint8Array(0), old, others, crl.with(60, (crl[60] ?? 0) ^ 1)]) {
      server.respond = () => new Response(new Uint8Array(body))
      expect(await start().crl(product, tree)).toMatchObject({ ok: false, kind: 'invalid' })
    }
    expect(readdirSync(dir)).toEqual([])
  })

  test('a renewed intermediate', async () => {
    // Goal: a VCEK below a newer intermediate that the ARK signed is accepted, with the chain on disk renewed.
    const { root, keys } = platform.authority
    await start().chain(product, tree)
    const renewed = await reissue(root.ask, { publicKey: keys.asvk.publicKey, signingKey: keys.ark.privateKey })
    const vcek = await reissue(platform.vcek, { signingKey: keys.asvk.privateKey })
    const chain = toPem(renewed, 'CERTIFICATE') + toPem(root.ark, 'CERTIFICATE')
    server.respond = request => new Response(request.url.endsWith('/cert_chain') ? chain : new Uint8Array(vcek))
    expect(await start().vcek(wanted)).toEqual({ ok: true, bytes: vcek, from: 'network' })
    expect(readFileSync(join(dir, chainRequest(product, tree).file), 'utf8')).toBe(chain)
    expect(await start().vcek(wanted)).toMatchObject({ ok: true, from: 'cache' })
  })

  test('a body of any length', async () => {
    // Goal: a response without end is cut off at the limit, whether it says its length or not.
    let sent = 0
    server.respond = () =>
      new Response(
        new ReadableStream({
          pull: controller => {
            sent += 1
            if (sent > 10_000) controller.close()
            else controller.enqueue(new Uint8Array(4096).fill(0x30))
          },
        }),
      )
    expect(await start().vcek(wanted)).toMatchObject({ ok: false, kind: 'invalid' })
    expect(sent).toBeLessThan(10_000)
    server.respond = () => new Response(new Uint8Array(100_000))
    expect(await start().chain(product, tree)).toMatchObject({ ok: false, kind: 'invalid' })
  })

  test('a slow server', async () => {
    // Goal: a server that sends nothing, or never the end, costs no more than the timeout.
    const { promise: never, resolve: end } = Promise.withResolvers<void>()
    const dripping = () =>
      new ReadableStream({
        start: controller => {
          controller.enqueue(new Uint8Array([0x30]))
        },
      })
    for (const slow of [() => never.then(() => new Response('')), () => new Response(dripping())]) {
      server.respond = slow
      const startedMs = performance.now()
      const found = await start({ timeoutMs: 100 }).vcek(wanted)
      expect(found).toMatchObject({ ok: false, kind: 'unreachable', reason: expect.stringContaining('100 ms') })
      expect(performance.now() - startedMs).toBeLessThan(25_000)
    }
    end()
  })

  test('refusals, errors and redirects', async () => {
    // Goal: each kind of failure has its name; no redirect is followed; a service that is not there is unreachable.
    for (const [status, kind] of [
      [400, 'refused'],
      [404, 'refused'],
      [301, 'refused'],
      [204, 'refused'],
      [500, 'unreachable'],
      [503, 'unreachable'],
    ] as const) {
      server.respond = () => new Response(null, { status, headers: { Location: `${server.url}elsewhere` } })
      expect(await start().vcek(wanted)).toMatchObject({ ok: false, kind })
    }
    expect(server.requests.some(request => request.includes('elsewhere'))).toBe(false)
    const closed = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('') })
    const baseUrl = closed.url.href
    await closed.stop(true)
    expect(await start({ baseUrl }).vcek(wanted)).toMatchObject({ ok: false, kind: 'unreachable' })
  })

  test('another attempt after a failure', async () => {
    // Goal: a failure is not remembered: the next attempt gets the good response.
    server.respond = () => new Response('', { status: 503 })
    const kds = start({ limits: { vcekIntervalMs: 0 } })
    expect(await kds.vcek(wanted)).toMatchObject({ ok: false })
    server.respond = serve
    expect(await kds.vcek(wanted)).toMatchObject({ ok: true, from: 'network' })
  })
})

test('below AMD’s roots nothing simulated is accepted', async () => {
  // Goal: with the default roots the stand-in's certificates are invalid.
  const kds = createKds({ baseUrl: server.url, cacheDir: dir, clock, log: silentLogger, send: fetchDirectly })
  expect(await kds.vcek(wanted)).toMatchObject({ ok: false, kind: 'invalid' })
  expect(await kds.chain(product, tree)).toMatchObject({ ok: false, kind: 'invalid' })
  expect(await kds.crl(product, tree)).toMatchObject({ ok: false, kind: 'invalid' })
  await until('nothing is kept', 60_000, () => readdirSync(dir).length === 0)
})
