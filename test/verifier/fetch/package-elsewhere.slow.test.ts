// Goal: a page of another origin, which the operator names in inference.cors_origins, does everything by itself:
// evidence, its verification, encrypted requests, streams, receipts. Chromium sends what it sends; nothing is routed.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { type ClientSite, startClientSite } from '../../rigs/package/package-page.ts'
import { type PackageClient, type PackageProject, preparePackage } from '../../rigs/package/package-project.ts'
import { startProxy } from '../../rigs/tls-peers.ts'

const text = 'Grüße 👋 you'
let project: PackageProject
let upstream: TestUpstream
let site: ClientSite
let gateway: AttestedGateway
const undo = new AsyncDisposableStack()
beforeAll(async () => {
  undo.defer(clearRig)
  project = undo.use(await preparePackage())
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  site = undo.use(await startClientSite(project))
  gateway = undo.use(await startAttestedGateway(upstream, { corsOrigins: [site.origin] }))
}, 600_000)
afterAll(() => undo.disposeAsync())

const { ca: _, ...options } = await attestedOptions()

async function open(page: PackageClient, url: string) {
  expect(await page.ask({ do: 'open', key: KEY, options: { ...options, url } })).toEqual({ value: 'open' })
}

test('goal: evidence, chat, streams, tools and receipts, with one preflight request for all', async () => {
  await using page = await site.open(gateway.url)
  await open(page, gateway.url)
  expect(await page.ask({ do: 'verify' })).toMatchObject({ value: { simulated: true } })
  // Public routes want no preflight request.
  expect(gateway.seen.splice(0)).toEqual(['GET /attestation', 'GET /workload.json'])
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  const { value } = (await page.ask({ do: 'stream' })) as { value: { text: string; pieces: number } }
  expect([value.text, value.pieces > 1]).toEqual([text, true])
  expect(await page.ask({ do: 'tools' })).toEqual({ value: ['weather'] })
  expect((await page.ask({ do: 'unknownModel' })).error).toMatchObject({ names: ['NotFoundError'], status: 404 })
  const outside = [`up-${new URL(upstream.url).port}`]
  for (const stream of [false, true]) {
    const url = `${gateway.url}/v1/chat/completions`
    expect(await page.ask({ do: 'receipt', url, stream, key: KEY, outside })).toEqual({
      value: { ok: true, failed: [], changed: false, model: 'tiny', requestId: true },
    })
  }
  expect(gateway.seen.splice(0)).toEqual(
    ['OPTIONS', ...Array(6).fill('POST')].map(name => `${name} /v1/chat/completions`),
  )
  expect(gateway.encryptedCount()).toBe(6)
}, 600_000)

test('goal: below a path, by a proxy that ends TLS and reads no body', async () => {
  await using proxy = await startProxy(
    () => gateway.url,
    (_, forward) => forward(),
    { prefix: '/team-a' },
  )
  const address = `https://127.0.0.1:${proxy.port}`
  await using page = await site.open(address)
  await open(page, `${address}/team-a`)
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  expect(await page.ask({ do: 'stream' })).toMatchObject({ value: { text } })
  expect(proxy.seen.map(item => item.path)).toEqual([
    ...['/team-a/attestation', '/team-a/workload.json'],
    ...Array(3).fill('/team-a/v1/chat/completions'),
  ])
  expect(proxy.seen.filter(item => item.body.includes('secret prompt') || item.body.includes('messages'))).toEqual([])
}, 600_000)

test('goal: a page that the operator does not name reads the evidence, and gets nothing of the API', async () => {
  await using stranger = await startClientSite(project)
  await using page = await stranger.open(gateway.url)
  await open(page, gateway.url)
  expect(await page.ask({ do: 'verify' })).toMatchObject({ value: { simulated: true } })
  gateway.seen.length = 0
  const { error } = await page.ask({ do: 'chat' })
  expect(error?.names.slice(0, 2)).toEqual(['APIConnectionError', 'ConnectionError'])
  expect(error?.messages.join(' ')).toContain('CORS')
  expect(gateway.seen).toEqual(['OPTIONS /v1/chat/completions'])
}, 600_000)
