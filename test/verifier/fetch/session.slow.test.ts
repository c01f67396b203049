// Goal: a client makes one encapsulation for all the requests that rely on one verification, and one connection carries
// them; new evidence begins anew. A replay epoch that has ended costs one refusal, and the next requests none.

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { ask, type FakeWire, secret, startFakeFetch, wireResponse } from '../../rigs/fake-wire.ts'
import { openClientPage } from '../../rigs/package/package-page.ts'
import {
  type ClientRuntime,
  type PackageClient,
  type PackageProject,
  preparePackage,
} from '../../rigs/package/package-project.ts'
import { nodeMajor } from '../../rigs/portable/runtimes.ts'
import { type Relay, startProxy, startRelay, type Proxy as TlsProxy } from '../../rigs/tls-peers.ts'

const text = 'Grüße 👋 you'
let project: PackageProject
let upstream: TestUpstream
let gateway: AttestedGateway
/** Holds the gateway's own TLS key, and sees the headers of requests. */
let proxy: TlsProxy
let relay: Relay
const undo = new AsyncDisposableStack()
beforeAll(async () => {
  undo.defer(clearRig)
  project = undo.use(await preparePackage())
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  gateway = undo.use(await startAttestedGateway(upstream))
  proxy = undo.use(
    await startProxy(
      () => gateway.url,
      (_, forward) => forward(),
      { pair: gateway.pair },
    ),
  )
  relay = undo.use(await startRelay(proxy.port))
}, 600_000)
afterAll(() => undo.disposeAsync())
afterEach(() => {
  proxy.seen.length = 0
})

const { ca, ...rest } = await attestedOptions()
const requestCount = 12

/** Encapsulated keys and nonces of the requests that the proxy saw. */
function sealedHeaders() {
  const posts = proxy.seen.filter(({ path }) => path.endsWith('/chat/completions'))
  const values = (name: string) => posts.map(({ headers }) => headers.get(name))
  return { keys: values('ehbp-encapsulated-key'), nonces: values('x-strongroom-request-nonce') }
}

async function use(client: PackageClient, options: Readonly<Record<string, unknown>>): Promise<void> {
  await client.ask({ do: 'open', key: KEY, options: { ...rest, ...options, url: relay.url } })
  const before = gateway.encryptedCount()
  for (let i = 0; i < requestCount; i += 1) expect(await client.ask({ do: 'chat' })).toEqual({ value: text })
  expect(gateway.encryptedCount() - before).toBe(requestCount)
  const { keys, nonces } = sealedHeaders()
  expect([keys.length, new Set(keys).size]).toEqual([requestCount, 1])
  // Every request has a nonce that no other has, of one epoch.
  expect([new Set(nonces).size, nonces.includes(null)]).toEqual([requestCount, false])
  expect(new Set(nonces.map(nonce => nonce?.slice(0, 32))).size).toBe(1)
  proxy.seen.length = 0
  // New evidence, though it names the same keys.
  await client.ask({ do: 'verify' })
  expect(await client.ask({ do: 'stream' })).toMatchObject({ value: { text } })
  const after = sealedHeaders()
  expect(after.keys).toHaveLength(1)
  expect(keys).not.toContain(after.keys[0] ?? null)
}

const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')
const runtimes: readonly (readonly [ClientRuntime, boolean])[] = [
  ['bun', false],
  ['node', noNode],
]

describe.each(runtimes)('%s', (runtime, isLeftOut) => {
  test.skipIf(isLeftOut)(
    'goal: one encapsulation and one connection for a session',
    async () => {
      await using client = project.start(runtime)
      const before = relay.connectionCount()
      await use(client, { ca })
      // Evidence twice, each on a connection of its own, and the requests.
      expect(relay.connectionCount() - before).toBe(3)
    },
    120_000,
  )
})

test('goal: one encapsulation for a session, in a page', async () => {
  await using page = await openClientPage(project, relay.url)
  await use(page, {})
}, 600_000)

describe('the replay epoch', () => {
  const epochs = (wire: FakeWire) =>
    wire.sent.map(({ headers }) => headers.get('x-strongroom-request-nonce')?.slice(0, 32))

  test('goal: requests at the same time, the first ones included, share an encapsulation and the epoch of the evidence', async () => {
    const { fetch, gateway: fake, wire } = await startFakeFetch()
    using _ = fake
    for (const { status } of await Promise.all([ask(fetch), ask(fetch), ask(fetch)])) expect(status).toBe(200)
    expect(new Set(wire.sent.map(({ headers }) => headers.get('ehbp-encapsulated-key'))).size).toBe(1)
    expect(epochs(wire)).toEqual(Array(3).fill(fake.replays.epoch))
  })

  // Goal: nobody signs the epoch of the evidence, so that whatever it is, it costs a refusal at most.
  test.each([[null], ['00'.repeat(16)], ['ab'.repeat(16)], ['no epoch']])('evidence with %j', async epoch => {
    for (const pins of [true, false]) {
      const { fetch, gateway: fake, wire } = await startFakeFetch({}, { pins })
      using _ = fake
      const { attest } = wire
      wire.attest = async (...given) => ({ ...(await attest(...given)), epoch })
      for (let i = 0; i < 3; i += 1) expect((await ask(fetch)).status).toBe(200)
      // One refusal, after which the client knows better.
      expect(epochs(wire).slice(1)).toEqual(Array(3).fill(fake.replays.epoch))
      expect([fake.seen, wire.nonces.length]).toEqual([[secret, secret, secret], 1])
    }
  })

  test('goal: a gateway that refuses the epoch that it has just named gets no request a third time', async () => {
    const { fetch, gateway: fake, wire } = await startFakeFetch()
    using _ = fake
    fake.replays.check = () => ({ outcome: 'stale', epoch: toHex(systemRandom(16)) })
    const response = await ask(fetch)
    expect([response.status, await response.json()]).toMatchObject([422, { error: { code: 'key_config_mismatch' } }])
    expect([wire.sent.length, wire.nonces.length]).toEqual([2, 1])
  })

  test('goal: what is not sealed by the gateway changes no epoch, and repeats no request', async () => {
    for (const pins of [true, false]) {
      const { fetch, gateway: fake, wire } = await startFakeFetch({}, { pins })
      using _ = fake
      const { epoch } = fake.replays
      const headers = { 'content-type': 'application/json', 'x-strongroom-epoch': `stale ${'ab'.repeat(16)}` }
      const { respond } = wire
      wire.respond = async () => wireResponse(422, headers, new TextEncoder().encode('{}'))
      await ask(fetch).catch(() => {})
      wire.respond = async request => {
        const response = await respond(request)
        response.headers.set('x-strongroom-epoch', headers['x-strongroom-epoch'])
        return response
      }
      expect((await ask(fetch)).status).toBe(200)
      expect(epochs(wire)).toEqual([epoch, epoch])
    }
  })
})
