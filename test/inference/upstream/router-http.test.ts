// The router within the gateway over real HTTP: caps, a full queue, failover and return; certificates and pins of
// upstreams.

import { describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { selfSigned } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { needsHost, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { sendJson, startUpstream, USAGE, wellBehaved } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { loadUpstream } from '../../../src/inference/upstream/load-target.ts'

describe('over HTTP', () => {
  // Goal: with a cap of N, exactly N of N+1 requests are at the upstream, and the last one follows.
  test('N+1', async () => {
    const upstream = await startUpstream()
    const release = Promise.withResolvers<void>()
    upstream.behave = async (response, seen, gone) => {
      await release.promise
      await wellBehaved(response, seen, gone)
    }
    await using gateway = await startGateway([target(upstream.url, { concurrencyMax: 4 })], {
      limits: { firstByteTimeoutMs: 60_000 },
    })
    const all = Array.from({ length: 5 }, () => gateway.chat())
    await until('one waits', 15_000, async () => (await viewOf(gateway)).waiting === 1)
    await until('four are there', 15_000, () => upstream.active() === 4)
    release.resolve()
    expect((await Promise.all(all)).map(answer => answer.status)).toEqual([200, 200, 200, 200, 200])
    expect(upstream.activeMax()).toBe(4)
    await upstream.stop()
  })

  // Goal: with a full queue Retry-After is an estimate from the queue's length and recent durations.
  test.skipIf(needsHost('it sets the clock'))('a full queue', async () => {
    const upstream = await startUpstream()
    const clock = createManualClock()
    const release = Promise.withResolvers<void>()
    const patient = {
      bodyTimeoutMs: 60_000,
      connectTimeoutMs: 60_000,
      firstByteTimeoutMs: 60_000,
      idleTimeoutMs: 60_000,
    }
    await using gateway = await startGateway([target(upstream.url, { concurrencyMax: 1 })], {
      host: { clock },
      limits: { ...patient, queueMax: 1 },
    })
    upstream.behave = (response, seen, gone) => {
      clock.advance(6_000)
      return wellBehaved(response, seen, gone)
    }
    for (let count = 0; count < 20; count += 1) await (await gateway.chat()).text()
    upstream.behave = async (response, seen, gone) => {
      await release.promise
      await wellBehaved(response, seen, gone)
    }
    const first = gateway.chat()
    await until('it is there', 15_000, () => upstream.active() === 1)
    const second = gateway.chat()
    await until('one waits', 15_000, async () => (await viewOf(gateway)).waiting === 1)
    const refused = await gateway.chat()
    expect([refused.status, refused.headers.get('x-should-retry')]).toEqual([429, 'true'])
    // Two leases of six seconds each: that of the one under way, and that of the one that waits.
    expect(refused.headers.get('retry-after')).toBe('12')
    release.resolve()
    for (const answer of [await first, await second]) expect(answer.status).toBe(200)
    await upstream.stop()
  })

  // Goal: before the first byte other upstreams are tried, each once; the client gets one response and the ledger one
  // row.
  test('failover', async () => {
    const [bad, good] = [await startUpstream(), await startUpstream()]
    bad.behave = response => sendJson(response, 500, {})
    bad.modelsStatus = 500
    await using gateway = await startGateway([target(bad.url), target(good.url)])
    const isEjected = async () => (await viewOf(gateway)).targets[0]?.ejected === true
    for (const stream of [false, true, false, true, true]) {
      if (bad.seen.length === 3) await until('the probe has failed', 15_000, isEjected)
      const answer = await gateway.chat({ stream })
      expect(answer.status).toBe(200)
      await answer.text()
    }
    expect((await gateway.records()).map(record => record.upstream)).toEqual(Array(5).fill(target(good.url).name))
    expect(bad.seen.length).toBe(3)
    expect(await isEjected()).toBe(true)
    await bad.stop()
    await good.stop()
  })

  // Goal: an ejected upstream that is healthy again takes requests again.
  test('return', async () => {
    const upstream = await startUpstream(response => sendJson(response, 500, {}))
    await using gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1, ejectMs: 50 } })
    upstream.modelsStatus = 500
    expect((await gateway.chat()).status).toBe(502)
    await until('it is ejected', 15_000, async () => (await viewOf(gateway)).targets[0]?.ejected === true)
    const asked = upstream.seen.length
    expect((await gateway.chat()).status).toBe(502)
    expect(upstream.seen.length).toBe(asked)
    upstream.behave = wellBehaved
    upstream.modelsStatus = 200
    await until('it is back', 15_000, async () => (await viewOf(gateway)).targets[0]?.ejected === false)
    expect((await gateway.chat()).status).toBe(200)
    await upstream.stop()
  })

  // Goal: a port that nobody listens on, and a server that accepts and never responds, end as a 502 in bounded time.
  test('nobody there', async () => {
    const listener = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => listener.once('listening', resolve))
    const address = listener.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    await new Promise(resolve => listener.close(resolve))
    await using gateway = await startGateway([target(`http://127.0.0.1:${port}/v1`)])
    expect((await gateway.chat()).status).toBe(502)
    expect((await gateway.log()).join()).toContain('unreachable')
  })
})

// Goal: only an upstream with a trusted chain, its name, and the pinned key gets a request; no byte goes to any other.
test('TLS', async () => {
  const own = await selfSigned('127.0.0.1')
  const other = await selfSigned('127.0.0.1')
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
    await using gateway = await startGateway([target(url, { ca, spkiSha256 })])
    expect([ca === own.cert, spkiSha256 === own.spkiSha256, (await gateway.chat()).status]).toEqual([
      ca === own.cert,
      spkiSha256 === own.spkiSha256,
      status,
    ])
    expect(requests - before).toBe(status === 200 ? 1 : 0)
  }
  await server.stop(true)
})

// Goal: unreadable files of an upstream, or a pin without effect, are an invalid configuration; a valid one is read
// unchanged.
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
    embedding_models: [],
    weight: 1,
    concurrency_max: 4,
    engine: 'vllm' as const,
    choices_max: 4,
    context_tokens: 0,
    content: ['image' as const],
    remote_urls: false,
    ca_file: '',
    spki_sha256: '',
    spki_sha256_next: '',
    attestation: '' as const,
    attestation_policy: '',
    attestation_collateral: '',
    attestation_path: '/attestation',
    attestation_minutes: 30,
    attestation_simulated_root: '',
  }
  expect(loadUpstream(config)).toMatchObject({
    url: 'https://127.0.0.1/v1',
    key: 'secret-key',
    engine: 'vllm',
    choicesMax: 4,
    contextTokens: null,
    content: ['image'],
    remoteUrls: false,
    ca: null,
    spkiSha256: null,
  })
  const pin = 'ab'.repeat(32)
  const two = loadUpstream({ ...config, spki_sha256: pin, spki_sha256_next: 'cd'.repeat(32) })
  expect([two.spkiSha256, two.spkiSha256Next]).toEqual([pin, 'cd'.repeat(32)])
  for (const bad of [
    { spki_sha256_next: pin },
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
