// Goal: a gateway below a path of its address: evidence and requests go below that path, and nothing goes elsewhere.

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
import { RequestError } from '../../../src/verifier/fetch/errors.ts'
import { failureOf, startFakeFetch } from '../../rigs/fake-wire.ts'
import { type ClientRuntime, type PackageProject, preparePackage } from '../../rigs/package/package-project.ts'
import { nodeMajor } from '../../rigs/portable/runtimes.ts'
import { startProxy, type Proxy as TlsProxy } from '../../rigs/tls-peers.ts'

const text = 'Grüße 👋 you'
let project: PackageProject
let upstream: TestUpstream
let gateway: AttestedGateway
/** Holds the gateway's own TLS key, as a proxy on its host may. */
let proxy: TlsProxy
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
      { pair: gateway.pair, prefix: '/team-a' },
    ),
  )
}, 600_000)
afterAll(() => undo.disposeAsync())
afterEach(() => {
  proxy.seen.length = 0
})

const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')
const runtimes: readonly (readonly [ClientRuntime, boolean])[] = [
  ['bun', false],
  ['node', noNode],
]

describe.each(runtimes)('%s', (runtime, isLeftOut) => {
  test.skipIf(isLeftOut)('goal: evidence, models, chat and streams go below the path', async () => {
    for (const end of ['', '/', '/v1']) {
      await using client = project.start(runtime)
      const address = `https://127.0.0.1:${proxy.port}/team-a`
      const options = { ...(await attestedOptions()), url: `${address}${end}` }
      await client.ask({ do: 'open', key: KEY, options, baseURL: `${address}/v1` })
      expect(await client.ask({ do: 'models' })).toEqual({ value: ['tiny'] })
      expect(await client.ask({ do: 'chat' })).toEqual({ value: text })
      expect(await client.ask({ do: 'stream' })).toMatchObject({ value: { text } })
      expect(proxy.seen.map(({ path }) => path)).toEqual([
        ...['/team-a/attestation', '/team-a/workload.json', '/team-a/v1/models'],
        ...['/team-a/v1/chat/completions', '/team-a/v1/chat/completions'],
      ])
      proxy.seen.length = 0
    }
  })
})

// Goal: other paths of the same address belong to others.
describe('beside the path', () => {
  test.each([
    ['/v1/chat/completions'],
    ['/team-ab/v1/chat/completions'],
    ['/team-a'],
    ['/team-a/../v1/chat/completions'],
    ['/team-a/%2e%2e/v1/chat/completions'],
    ['/TEAM-A/v1/chat/completions'],
  ])('%s', async path => {
    const { fetch, gateway: fake } = await startFakeFetch({ url: 'https://gateway.example/team-a' })
    using _ = fake
    const error = await failureOf(fetch(`https://gateway.example${path}`, { method: 'POST', body: 'x' }))
    expect(error).toBeInstanceOf(RequestError)
    expect(error.message).toContain('https://gateway.example/team-a')
  })
})
