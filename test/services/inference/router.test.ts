// Choice, caps, queue, ejection and return; failover over real HTTP; certificates and pins.

import { describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadX509 } from '../../../src/attest/x509-runtime.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createRouter, type Router } from '../../../src/services/inference/router.ts'
import { loadUpstream } from '../../../src/services/inference/upstream.ts'
import { createManualClock } from '../../support/clock.ts'
import { failure, until } from '../../support/until.ts'
import { MODEL, startGateway, target } from './gateway-server.ts'
import { sendJson, startUpstream, USAGE, wellBehaved } from './upstream-server.ts'

const x509 = await loadX509()

type Target = { name: string; models: string[]; weight: number; concurrencyMax: number }
const one = (name: string, more: Partial<Target> = {}): Target => ({
  name,
  models: [MODEL],
  weight: 1,
  concurrencyMax: 2,
  ...more,
})

function setUp(targets: Target[], probe: (target: Target) => Promise<boolean> = async () => true) {
  const clock = createManualClock()
  const limits = { queueMax: 2, queueTimeoutMs: 1_000, ejectFailures: 3, ejectMs: 500 }
  const router = createRouter<Target>({ targets, probe, clock, log: silentLogger, ...limits })
  const acquire = (except: Target[] = [], signal = new AbortController().signal) =>
    router.acquire(MODEL, { except: new Set(except), signal })
  return { clock, router, acquire }
}

async function failTimes(router: Router<Target>, count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) {
    const lease = await router.acquire(MODEL, { except: new Set(), signal: new AbortController().signal })
    lease.release('unwell')
  }
}

describe('choice', () => {
  // Goal: the load follows the weights when requests stay, and turns follow them when they do not.
  test('weights', async () => {
    const { acquire } = setUp([one('a', { concurrencyMax: 99 }), one('b', { concurrencyMax: 99, weight: 3 })])
    const names: string[] = []
    for (let i = 0; i < 40; i += 1) names.push((await acquire()).target.name)
    expect(names.filter(name => name === 'b').length).toBe(30)
    const equals = setUp([one('a'), one('b')])
    const turns: string[] = []
    for (let i = 0; i < 4; i += 1) {
      const lease = await equals.acquire()
      turns.push(lease.target.name)
      lease.release('well')
    }
    expect(turns).toEqual(['a', 'b', 'a', 'b'])
  })

  // Goal: a model is asked of those that serve it, and never of one that is excepted.
  test('models and exceptions', async () => {
    const [a, b] = [one('a'), one('b', { models: ['other'] })]
    const { acquire } = setUp([a, b])
    expect((await acquire()).target.name).toBe('a')
    expect(await failure(acquire([a]))).toMatchObject({ code: 'upstream_failed', reason: 'none_well' })
  })
})

describe('queue', () => {
  // Goal: beyond the cap requests wait in their order, the queue is bounded, and its wait ends.
  test('order, bound and time', async () => {
    const { clock, router, acquire } = setUp([one('a', { concurrencyMax: 1 })])
    const first = await acquire()
    const order: string[] = []
    const second = acquire().then(lease => {
      order.push('second')
      return lease
    })
    const third = acquire()
    expect(await failure(acquire())).toMatchObject({ code: 'rate_limited' })
    expect(router.view()).toEqual({ waiting: 2, targets: [{ name: 'a', active: 1, ejected: false }] })
    first.release('well')
    first.release('well')
    await second
    expect(order).toEqual(['second'])
    expect(router.view().waiting).toBe(1)
    const late = failure(third)
    await clock.elapse(1_000)
    expect(await late).toMatchObject({ code: 'rate_limited' })
    expect(router.view()).toMatchObject({ waiting: 0, targets: [{ active: 1 }] })
    expect(clock.pending()).toEqual([])
  })

  // Goal: whoever leaves the queue takes no place.
  test('leaving', async () => {
    const { router, acquire } = setUp([one('a', { concurrencyMax: 1 })])
    const first = await acquire()
    const leave = new AbortController()
    const waiting = failure(acquire([], leave.signal))
    leave.abort(new Error('gone'))
    expect((await waiting).message).toBe('gone')
    first.release('neutral')
    expect(router.view()).toMatchObject({ waiting: 0, targets: [{ active: 0 }] })
  })
})

describe('health', () => {
  // Goal: three failures in a row eject, a success in between does not; the probe decides on the return.
  test('ejection and return', async () => {
    const answers = [false, true]
    const { clock, router, acquire } = setUp([one('a')], async () => answers.shift() ?? true)
    await failTimes(router, 2)
    ;(await acquire()).release('well')
    await failTimes(router, 2)
    expect(router.view().targets[0]?.ejected).toBe(false)
    await failTimes(router, 1)
    expect(await failure(acquire())).toMatchObject({ reason: 'none_well' })
    await clock.elapse(500)
    expect(router.view().targets[0]?.ejected).toBe(true)
    await clock.elapse(500)
    expect(router.view().targets[0]?.ejected).toBe(false)
    expect(answers).toEqual([])
    expect((await acquire()).target.name).toBe('a')
  })

  // Goal: a hint makes the probe come now; it brings nothing back by itself, and means nothing for one that is not ejected.
  test('hints', async () => {
    const answers = [false, true]
    const { clock, router } = setUp([one('a'), one('b')], async () => answers.shift() ?? true)
    const isEjected = () => router.view().targets.map(target => target.ejected)
    router.hint('a')
    await failTimes(router, 6)
    expect(isEjected()).toEqual([true, true])
    router.hint('a')
    await clock.elapse(0)
    expect([answers.length, isEjected()]).toEqual([1, [true, true]])
    router.hint('a')
    await clock.elapse(0)
    expect([answers.length, isEjected()]).toEqual([0, [false, true]])
  })

  // Goal: who waits for an upstream that is ejected is told at once; closing ends every wait and every probe.
  test('waiters of the ejected, and close', async () => {
    const { clock, router, acquire } = setUp([one('a', { concurrencyMax: 1 })])
    await failTimes(router, 2)
    const lease = await acquire()
    const waiting = failure(acquire())
    lease.release('unwell')
    expect(await waiting).toMatchObject({ reason: 'none_well' })
    expect(router.view()).toEqual({ waiting: 0, targets: [{ name: 'a', active: 0, ejected: true }] })
    router.close()
    await clock.elapse(10_000)
    expect(clock.pending()).toEqual([])
  })
})

describe('over HTTP', () => {
  // Goal: with a cap of N, exactly N of N+1 requests are at the upstream, and the last one follows.
  test('N+1', async () => {
    const upstream = await startUpstream()
    const release = Promise.withResolvers<void>()
    upstream.behave = async (response, seen, gone) => {
      await release.promise
      await wellBehaved(response, seen, gone)
    }
    await using gateway = startGateway([target(upstream.url, { concurrencyMax: 4 })], {
      limits: { firstByteTimeoutMs: 5_000 },
    })
    const all = Array.from({ length: 5 }, () => gateway.chat())
    await until('one waits', 2_000, () => gateway.gateway.view().waiting === 1)
    await until('four are there', 2_000, () => upstream.active() === 4)
    release.resolve()
    expect((await Promise.all(all)).map(answer => answer.status)).toEqual([200, 200, 200, 200, 200])
    expect(upstream.activeMax()).toBe(4)
    await upstream.stop()
  })

  // Goal: before the first byte another upstream is asked, each once; the client sees one answer and the books one row.
  test('failover', async () => {
    const [bad, good] = [await startUpstream(), await startUpstream()]
    bad.behave = response => sendJson(response, 500, {})
    await using gateway = startGateway([target(bad.url), target(good.url)])
    for (const stream of [false, true, false, true]) {
      const answer = await gateway.chat({ stream })
      expect(answer.status).toBe(200)
      await answer.text()
    }
    expect(gateway.records.map(record => record.upstream)).toEqual(gateway.records.map(() => target(good.url).name))
    expect(bad.seen.length).toBe(3)
    expect(gateway.gateway.view().targets[0]?.ejected).toBe(true)
    await bad.stop()
    await good.stop()
  })

  // Goal: an ejected upstream that is well again takes requests again.
  test('return', async () => {
    const upstream = await startUpstream(response => sendJson(response, 500, {}))
    await using gateway = startGateway([target(upstream.url)], { limits: { ejectFailures: 1, ejectMs: 50 } })
    upstream.modelsStatus = 500
    expect((await gateway.chat()).status).toBe(502)
    const asked = upstream.seen.length
    expect((await gateway.chat()).status).toBe(502)
    expect(upstream.seen.length).toBe(asked)
    upstream.behave = wellBehaved
    upstream.modelsStatus = 200
    await until('it is back', 3_000, () => gateway.gateway.view().targets[0]?.ejected === false)
    expect((await gateway.chat()).status).toBe(200)
    await upstream.stop()
  })

  // Goal: what nobody listens on, and what takes connections without answering, end as a 502 in bounded time.
  test('nobody there', async () => {
    const listener = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => listener.once('listening', resolve))
    const address = listener.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    await new Promise(resolve => listener.close(resolve))
    await using gateway = startGateway([target(`http://127.0.0.1:${port}/v1`)])
    expect((await gateway.chat()).status).toBe(502)
    expect(gateway.log.join()).toContain('unreachable')
  })
})

async function selfSigned(): Promise<{ cert: string; key: string; spkiSha256: string }> {
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
  const keys = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=upstream',
    notBefore: new Date(Date.now() - 60_000),
    notAfter: new Date(Date.now() + 3_600_000),
    keys,
    signingAlgorithm: algorithm,
    extensions: [new x509.SubjectAlternativeNameExtension([{ type: 'ip', value: '127.0.0.1' }])],
  })
  const key = x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', keys.privateKey), 'PRIVATE KEY')
  const spki = new Uint8Array(await crypto.subtle.exportKey('spki', keys.publicKey))
  return {
    cert: certificate.toString('pem'),
    key,
    spkiSha256: new Bun.CryptoHasher('sha256').update(spki).digest('hex'),
  }
}

// Goal: only an upstream with a trusted chain, its name, and the pinned key gets a request; no byte goes to any other.
test('TLS', async () => {
  const own = await selfSigned()
  const other = await selfSigned()
  let requests = 0
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert: own.cert, key: own.key },
    fetch: () => {
      requests += 1
      const choice = { index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }
      return Response.json({ choices: [choice], usage: USAGE })
    },
  })
  const byAddress = `https://127.0.0.1:${server.port}/v1`
  const byName = `https://localhost:${server.port}/v1`
  const rows: [url: string, ca: string | null, pin: string | null, status: number][] = [
    [byAddress, own.cert, null, 200],
    [byAddress, own.cert, own.spkiSha256, 200],
    [byAddress, own.cert, other.spkiSha256, 502],
    [byAddress, null, own.spkiSha256, 502],
    [byAddress, other.cert, own.spkiSha256, 502],
    [byName, own.cert, own.spkiSha256, 502],
    [byAddress, own.cert, own.spkiSha256, 200],
  ]
  for (const [url, ca, spkiSha256, status] of rows) {
    const before = requests
    await using gateway = startGateway([target(url, { ca, spkiSha256 })])
    expect([ca === own.cert, spkiSha256 === own.spkiSha256, (await gateway.chat()).status]).toEqual([
      ca === own.cert,
      spkiSha256 === own.spkiSha256,
      status,
    ])
    expect(requests - before).toBe(status === 200 ? 1 : 0)
  }
  await server.stop(true)
})

// Goal: an upstream whose files cannot be read, or whose pin could not hold, stops the start; a good one is read as it is.
test('loading', () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-upstream-'))
  const keyFile = join(directory, 'key')
  const badKeyFile = join(directory, 'bad')
  writeFileSync(keyFile, 'secret-key\n')
  writeFileSync(badKeyFile, 'two\nlines')
  const config = {
    name: 'a',
    url: 'https://127.0.0.1/v1/',
    key_file: keyFile,
    models: [MODEL],
    weight: 1,
    concurrency_max: 4,
    ca_file: '',
    spki_sha256: '',
  }
  expect(loadUpstream(config)).toMatchObject({
    url: 'https://127.0.0.1/v1',
    key: 'secret-key',
    ca: null,
    spkiSha256: null,
  })
  const pin = 'ab'.repeat(32)
  for (const bad of [
    { key_file: join(directory, 'none') },
    { key_file: badKeyFile },
    { ca_file: join(directory, 'none') },
    { url: 'http://127.0.0.1/v1', spki_sha256: pin },
    { url: 'http://127.0.0.1/v1', ca_file: keyFile },
  ]) {
    expect(() => loadUpstream({ ...config, ...bad })).toThrow('inference.upstreams "a"')
  }
  rmSync(directory, { recursive: true })
})
