// Endpoints of a gateway with relays beside completions: each relay responds as the single process would.

import { afterAll, expect, test } from 'bun:test'
import { connect } from 'node:tls'
import { clearRig, newNonce } from '../../../scripts/rigs/gateway/attestation.ts'
import { serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { chatBody, KEY, MODEL, target } from '../../../scripts/rigs/gateway/server.ts'
import { samplesOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { gatewaySettings } from '../../../src/appliance/inference.ts'
import { bindingOf } from '../../../src/attest/ehbp/binding.ts'
import { SealingSession } from '../../../src/attest/ehbp/client.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import { encapsulate } from '../../../src/attest/receipt/encapsulate-portable.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { Member } from '../../../src/inference/relay/member.ts'
import { type RelayedGateway, startRelayedGateway } from '../../rigs/gateway/relayed-gateway.ts'

const waitMs = 60_000
const requestCount = 12

afterAll(clearRig)

async function allListen(gateway: RelayedGateway): Promise<void> {
  await until('both relays listen', waitMs, () => gateway.counts().running === 2)
}

/** Over connections of their own, which the kernel spreads over the relays. */
function many<T>(ask: (at: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: requestCount }, (_, at) => ask(at)))
}

test('goal: whatever is no completion is what the owner responds, by every relay', async () => {
  const upstream = await startUpstream()
  await using gateway = await startRelayedGateway([target(upstream.url)])
  await allListen(gateway)
  const get = (path: string, init: RequestInit = {}) =>
    fetch(gateway.url + path, { keepalive: false, headers: { authorization: `Bearer ${KEY}` }, ...init })
  const models = await many(async () => {
    const response = await get('/v1/models')
    return [response.status, ((await response.json()) as { data: { id: string }[] }).data[0]?.id]
  })
  expect(models).toEqual(Array.from({ length: requestCount }, () => [200, MODEL]))
  const openapi = await get('/openapi.json')
  expect((await openapi.text()).length).toBeGreaterThan(10_000)
  const head = await get('/health', { method: 'HEAD' })
  expect([head.status, await head.text(), head.headers.get('content-length')]).toEqual([200, '', '15'])
  const keysPath = '/.well-known/hpke-keys'
  const own = await gateway.service.fetch(new Request(gateway.url + keysPath), () => '127.0.0.1')
  const keys = await get(keysPath)
  expect([keys.status, await keys.arrayBuffer()]).toEqual([200, await own.arrayBuffer()])
  const usage = await many(async () => (await get('/v1/usage?by=day&format=csv')).text())
  expect(usage).toEqual(Array(requestCount).fill('day,requests,prompt_tokens,completion_tokens,cost_usd\r\n'))
  const table = [
    ['/nowhere', {}, 404, 'not_found'],
    ['/v1/usage?form=csv', {}, 400, 'invalid_request'],
    ['/v1/nowhere', {}, 404, 'not_found'],
    ['/v1/nowhere', { headers: {} }, 401, 'unauthenticated'],
    ['/v1/chat/completions', {}, 405, 'method_not_allowed'],
    ['/v1/models', { method: 'POST', body: '{}' }, 405, 'method_not_allowed'],
    ['/attestation', {}, 400, 'invalid_request'],
    ['/v1/models', { headers: {} }, 401, 'unauthenticated'],
  ] as const
  for (const [path, init, status, code] of table) {
    const response = await get(path, init)
    const body = (await response.json()) as { error: { code: string } }
    expect([path, response.status, body.error.code]).toEqual([path, status, code])
    expect(response.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
  }
  await upstream.stop()
})

test('goal: the key is looked at before the body, the body before the limits, whichever process decides', async () => {
  const upstream = await startUpstream()
  await using gateway = await startRelayedGateway([target(upstream.url)], {
    caller: { requestsPerMinute: 1 },
  })
  const ask = (init: RequestInit) =>
    fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', body: '{}', ...init }).then(({ status }) => status)
  const key = { authorization: `Bearer ${KEY}` }
  const wrong = { 'content-type': 'text/plain' }
  expect(await ask({ headers: wrong })).toBe(401)
  expect(await ask({ headers: { ...key, ...wrong } })).toBe(400)
  expect(await ask({ headers: key, body: 'x'.repeat(70_000) })).toBe(413)
  // None of these has taken the one request of this minute.
  expect((await gateway.chat()).status).toBe(200)
  expect(await ask({ headers: { ...key, ...wrong } })).toBe(400)
  expect((await gateway.chat()).status).toBe(429)
  await upstream.stop()
})

test('goal: receipts are signed by the same keys everywhere, and one that is kept is had from every relay', async () => {
  const upstream = await startUpstream()
  await using gateway = await startRelayedGateway([target(upstream.url)])
  await allListen(gateway)
  const kept = await many(async () => {
    const headers = { 'x-strongroom-receipt': 'keep' }
    const answer = await gateway.chat({}, { keepalive: false, headers })
    return [answer.headers.get('x-strongroom-receipt-path') ?? '', await answer.text()] as const
  })
  for (const [path] of kept) {
    const receipt = await fetch(gateway.url + path, { keepalive: false, headers: { authorization: `Bearer ${KEY}` } })
    expect([receipt.status, (await receipt.text()).length > 1_000]).toEqual([200, true])
  }
  await upstream.stop()
})

test('goal: an encrypted body that one relay has opened is refused by all, bound or not', async () => {
  const upstream = await startUpstream()
  await using gateway = await startRelayedGateway([target(upstream.url)])
  await allListen(gateway)
  const options = { keys: gateway.keys.publicKeys, suite: 'xwing', random: systemRandom, encapsulate } as const
  const path = '/v1/chat/completions'
  const authorization = `Bearer ${KEY}`
  const { epoch } = await epochOf(gateway)
  const binding = bindingOf({ method: 'POST', target: path, headers: new Headers({ authorization }) })
  const body = utf8(JSON.stringify(chatBody()))
  const session = await SealingSession.open(options)
  for (const sealed of [await sealRequest(options, body), await session.seal(body, { binding, epoch })]) {
    const headers = { authorization, 'content-type': 'application/json', ...sealed.headers }
    const statuses = await many(async () => {
      const response = await fetch(gateway.url + path, { method: 'POST', keepalive: false, headers, body: sealed.body })
      return response.status
    })
    expect(statuses.sort()).toEqual([200, ...Array(requestCount - 1).fill(400)])
  }
  expect(upstream.seen.length).toBe(2)
  const counted = samplesOf(gateway.service.metrics.render())
    .filter(({ name, labels }) => name === 'strongroom_gateway_encrypted_requests_total' && labels.suite === 'xwing')
    .map(({ labels, value }) => [labels.outcome, value])
  expect(Object.fromEntries(counted)).toEqual({
    decrypted: 2,
    key_config_mismatch: 0,
    malformed: 0,
    replayed: 2 * (requestCount - 1),
  })
  await upstream.stop()
})

/** As a client of the package hears it, by a relay. */
async function epochOf(gateway: RelayedGateway) {
  const response = await fetch(`${gateway.url}/attestation?nonce=${newNonce()}`)
  return { epoch: fromHex(response.headers.get('x-strongroom-epoch') ?? '') ?? new Uint8Array(16) }
}

test('goal: spans and counts of all relays come together', async () => {
  const upstream = await startUpstream()
  const traces = { sampleRatio: 1, followParent: false, forwardParent: true }
  await using gateway = await startRelayedGateway([target(upstream.url)], { settings: { traces } })
  await allListen(gateway)
  await many(at => gateway.chat({ stream: at % 2 === 0 }, { keepalive: false }).then(answer => answer.text()))
  await until('all have ended', waitMs, () => gateway.spans.length >= 2 * requestCount)
  expect(gateway.spans.filter(span => span.kind === 'request')).toHaveLength(requestCount)
  expect(gateway.spans.filter(span => span.kind === 'attempt')).toHaveLength(requestCount)
  expect(upstream.seen.every(({ headers }) => headers.has('traceparent'))).toBe(true)
  const ended = () => {
    const samples = samplesOf(gateway.service.metrics.render())
    const counts = samples.filter(({ name }) => name === 'strongroom_gateway_requests_total')
    return counts.reduce((sum, { value }) => sum + value, 0)
  }
  await until('all are counted', waitMs, () => ended() >= requestCount)
  expect(ended()).toBe(requestCount)
  await upstream.stop()
})

test('goal: an upstream gets the key that it has now, from every relay', async () => {
  const upstream = await startUpstream()
  let key = 'first-key'
  const item = {
    ...target(upstream.url),
    get key() {
      return key
    },
  }
  await using gateway = await startRelayedGateway([item])
  await allListen(gateway)
  const seenKeys = () => new Set(upstream.seen.splice(0).map(({ headers }) => headers.get('authorization')))
  await many(() => gateway.chat({}, { keepalive: false }))
  expect(seenKeys()).toEqual(new Set(['Bearer first-key']))
  key = 'second-key'
  await many(() => gateway.chat({}, { keepalive: false }))
  expect(seenKeys()).toEqual(new Set(['Bearer second-key']))
  await upstream.stop()
})

test('goal: relays follow the certificate, and ask their clients to leave where the gateway is drained', async () => {
  const upstream = await startUpstream()
  const authority = await serverAuthority()
  const issue = () => authority.issue(['127.0.0.1'], 1)
  const listeners: (() => void)[] = []
  let pair = await issue()
  const tls = {
    current: () => pair,
    guestCertificate: () => pair.cert,
    onChange: (listener: () => void) => void listeners.push(listener),
  }
  await using gateway = await startRelayedGateway([target(upstream.url)], { tls })
  await allListen(gateway)
  const served = () =>
    many(async () => {
      const response = await fetch(`${gateway.url}/health`, { keepalive: false, tls: { ca: authority.caPem } })
      return response.headers.get('connection')
    })
  const certificateOf = async () => {
    const { promise, resolve } = Promise.withResolvers<string | null>()
    const { hostname, port } = new URL(gateway.url)
    const socket = connect({ host: hostname, port: Number(port), ca: authority.caPem }, () => {
      resolve(socket.getPeerCertificate().fingerprint256)
      socket.destroy()
    })
    // A connection that the old listener had not taken yet is reset as it closes.
    socket.on('error', () => resolve(null))
    return await promise
  }
  expect(await served()).toEqual(Array.from({ length: requestCount }, () => null))
  const [before] = await many(certificateOf)
  pair = await issue()
  for (const listener of listeners) listener()
  await until('every relay has the new one', waitMs, async () => {
    const seen = new Set(await many(certificateOf))
    return !seen.has(null) && !seen.has(before ?? null)
  })
  expect(await served()).toEqual(Array.from({ length: requestCount }, () => null))
  gateway.drain()
  await until('all are asked to leave', waitMs, async () => (await served()).every(header => header === 'close'))
  await upstream.stop()
})

test('goal: a relay that does not answer any more is killed', async () => {
  const upstream = await startUpstream()
  await using gateway = await startRelayedGateway([target(upstream.url)], { processes: 1 })
  const listening = Promise.withResolvers<void>()
  const member = await Member.start({
    gateway: { fetch: gateway.service.fetch, enter: never, acquire: never, place: never },
    upstreams: [],
    keptReceipts: { keep: () => {} },
    responses: { isOn: false, survey: () => null, find: () => null, keep: () => {} },
    encryptionCounts: {
      x25519: { decrypted: 0, key_config_mismatch: 0, malformed: 0, replayed: 0 },
      xwing: { decrypted: 0, key_config_mismatch: 0, malformed: 0, replayed: 0 },
    },
    checkReplay: never,
    offerSpan: () => {},
    log: silentLogger,
    deadlines: createDeadlines(systemClock),
    timing: { startMs: waitMs, pingMs: 50, pingsMax: 100 },
    onListening: listening.resolve,
    setup: {
      kind: 'setup',
      listen: { hostname: '127.0.0.1', port: 0 },
      tls: null,
      settings: gatewaySettings(defaultConfig()),
      padsStreams: false,
      inside: [],
      upstreams: [],
      keptReceiptsMs: 0,
      keepsResponses: false,
      receiptSeeds: '00'.repeat(96),
      cacheSecret: '00'.repeat(32),
      isDraining: false,
    },
  })
  await listening.promise
  process.kill(member.pid, 'SIGSTOP')
  expect(await member.ended).toBe('it stopped answering')
  await upstream.stop()
})

function never(): never {
  throw new Error('nobody asks here')
}
