// Goal: a client makes one encapsulation for all the requests that rely on one verification, and one connection carries
// them; new evidence begins anew.

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
import { ask, startFakeFetch } from '../../rigs/fake-wire.ts'
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
}, 120_000)
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
  expect([keys.length, new Set(keys).size, nonces[0]]).toEqual([requestCount, 1, null])
  // Every later request has a nonce that no other has.
  expect(new Set(nonces).size).toBe(requestCount)
  proxy.seen.length = 0
  // New evidence, though it names the same keys.
  await client.ask({ do: 'verify' })
  expect(await client.ask({ do: 'stream' })).toMatchObject({ value: { text } })
  const after = sealedHeaders()
  expect(after.nonces).toEqual([null])
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
}, 120_000)

test('goal: a gateway without sessions gets an encapsulation with every request', async () => {
  const { fetch, gateway: fake, wire } = await startFakeFetch()
  using _ = fake
  for (let i = 0; i < 3; i += 1) expect((await ask(fetch)).status).toBe(200)
  expect(new Set(wire.sent.map(({ headers }) => headers.get('ehbp-encapsulated-key'))).size).toBe(3)
  expect(wire.sent.every(({ headers }) => headers.get('x-strongroom-request-nonce') === null)).toBe(true)
})
