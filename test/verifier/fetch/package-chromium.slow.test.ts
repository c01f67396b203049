// Goal: in a page, where nobody sees the key of a connection, bodies are sealed to the attested key: whoever ends TLS
// reads and changes nothing of them.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { builtinModules } from 'node:module'
import { join } from 'node:path'
import { clearRig, newNonce } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import type { AttestationResponse } from '../../../src/contract/http/attestation.ts'
import { OptionError } from '../../../src/verifier/fetch/errors.ts'
import { createWebTransport } from '../../../src/verifier/fetch/web-transport.ts'
import { importsOf } from '../../meta/source.ts'
import { openClientPage } from '../../rigs/package/package-page.ts'
import { type PackageClient, type PackageProject, preparePackage } from '../../rigs/package/package-project.ts'
import { type Relay, startProxy, startRelay } from '../../rigs/tls-peers.ts'

let project: PackageProject
let upstream: TestUpstream
let gateway: AttestedGateway
let relay: Relay
let page: PackageClient
const undo = new AsyncDisposableStack()
beforeAll(async () => {
  undo.defer(clearRig)
  project = undo.use(await preparePackage())
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  gateway = undo.use(await startAttestedGateway(upstream))
  relay = undo.use(await startRelay(gateway.port))
  page = undo.use(await openClientPage(project, relay.url))
}, 600_000)
afterAll(() => undo.disposeAsync())

const { ca: _, ...options } = await attestedOptions()
const prompt = 'the secret prompt'
const text = 'Grüße 👋 you'

async function open(changes: Readonly<Record<string, unknown>> = {}) {
  return await page.ask({ do: 'open', key: KEY, options: { ...options, url: relay.url, ...changes } })
}

beforeEach(async () => {
  relay.lead(gateway.port)
  expect(await open()).toEqual({ value: 'open' })
})

test('goal: chat, streams and tool calls work in the page', async () => {
  const before = gateway.encryptedCount()
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  const { value } = (await page.ask({ do: 'stream' })) as { value: { text: string; pieces: number } }
  expect([value.text, value.pieces > 1]).toEqual([text, true])
  expect(await page.ask({ do: 'tools' })).toEqual({ value: ['weather'] })
  expect(await page.ask({ do: 'streamedTools' })).toEqual({ value: ['weather'] })
  expect(await page.ask({ do: 'leave' })).toEqual({ value: 'left' })
  expect((await page.ask({ do: 'unknownModel' })).error).toMatchObject({ names: ['NotFoundError'], status: 404 })
  expect(gateway.encryptedCount() - before).toBe(6)
  expect(await page.ask({ do: 'evidence' })).toMatchObject({ value: { simulated: true } })
})

test('goal: whoever ends TLS carries everything and reads no body', async () => {
  await using proxy = await startProxy(() => gateway.url)
  relay.lead(proxy.port)
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  expect(await page.ask({ do: 'stream' })).toMatchObject({ value: { text } })
  const posts = proxy.seen.filter(item => item.path === '/v1/chat/completions')
  expect(posts.map(post => post.body.includes(prompt) || post.body.includes('messages'))).toEqual([false, false])
  // Headers are not sealed, and the README says so.
  expect(posts.every(post => post.headers.get('authorization') === `Bearer ${KEY}`)).toBe(true)
})

test('goal: what cannot be sealed is not sent', async () => {
  await using proxy = await startProxy(() => gateway.url)
  relay.lead(proxy.port)
  expect((await page.ask({ do: 'models' })).error?.names).toEqual(['APIConnectionError', 'RequestError'])
  expect(proxy.seen.map(item => item.path)).toEqual(['/attestation', '/workload.json'])
})

test('goal: options that a page cannot keep to are refused', async () => {
  expect((await open({ encryption: 'off' })).error?.messages[0]).toStartWith('encryption: ')
  expect((await open({ ca: 'any' })).error?.messages[0]).toStartWith('ca: ')
})

test('goal: a gateway that starts again with new keys is verified again, and requests go on', async () => {
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  await using next = await startAttestedGateway(upstream)
  relay.lead(next.port)
  expect(await page.ask({ do: 'chat' })).toEqual({ value: text })
  expect(next.nonceCount()).toBe(1)
})

// Goal: who ends TLS changes nothing unseen, and gets nothing to read.
describe('who ends TLS and', () => {
  const json = { 'content-type': 'application/json' }
  const completion = JSON.stringify({ choices: [{ message: { role: 'assistant', content: 'forged' } }] })

  test('answers himself, in the clear, is not believed', async () => {
    await using proxy = await startProxy(
      () => gateway.url,
      ({ method }, forward) => (method === 'GET' ? forward() : new Response(completion, { headers: json })),
    )
    relay.lead(proxy.port)
    expect((await page.ask({ do: 'chat' })).error?.names.slice(0, 2)).toEqual(['APIConnectionError', 'EncryptionError'])
  })

  test('cuts a stream at whatever frame ends it with an error', async () => {
    let keptBytes = 0
    await using proxy = await startProxy(
      () => gateway.url,
      async ({ method }, forward) => {
        const response = await forward()
        if (method === 'GET') return response
        const bytes = new Uint8Array(await response.arrayBuffer())
        const { status, headers } = response
        return new Response(bytes.subarray(0, Math.min(keptBytes, bytes.length - 1)), { status, headers })
      },
    )
    relay.lead(proxy.port)
    for (keptBytes of [0, 30, 500, 1_000_000]) {
      const { error } = await page.ask({ do: 'stream' })
      expect(error?.names).toContain('IncompleteResponseError')
    }
  })

  test('changes a byte ends it with an error', async () => {
    await using proxy = await startProxy(
      () => gateway.url,
      async ({ method }, forward) => {
        const response = await forward()
        if (method === 'GET') return response
        const bytes = new Uint8Array(await response.arrayBuffer())
        bytes[10] = (bytes[10] ?? 0) ^ 1
        const { status, headers } = response
        return new Response(bytes, { status, headers })
      },
    )
    relay.lead(proxy.port)
    expect((await page.ask({ do: 'chat' })).error?.names).toContain('EncryptionError')
  })

  test('puts his own encryption key into the receipts gets nothing', async () => {
    await using other = await startAttestedGateway(upstream)
    await using proxy = await startProxy(
      () => gateway.url,
      async ({ url }, forward) => {
        if (!new URL(url).pathname.startsWith('/attestation')) return await forward()
        const document = (await (await forward()).json()) as AttestationResponse
        const elsewhere = await fetch(`${other.url}/attestation?nonce=${newNonce()}`, {
          tls: { rejectUnauthorized: false },
        })
        const { receipts } = (await elsewhere.json()) as AttestationResponse
        const { x25519, mlkem768 } = receipts[0].receipt.keys
        for (const item of document.receipts) Object.assign(item.receipt.keys, { x25519, mlkem768 })
        return Response.json(document)
      },
    )
    relay.lead(proxy.port)
    const { error } = await page.ask({ do: 'chat' })
    expect([error?.names, error?.failed]).toEqual([
      ...[['APIConnectionError', 'VerificationError'], expect.arrayContaining(['gateway/evidence'])],
    ])
    expect(proxy.seen.map(item => item.path)).toEqual(['/attestation', '/workload.json'])
  })

  test('repeats receipts that he has recorded gets nothing', async () => {
    const recorded = await (
      await fetch(`${gateway.url}/attestation?nonce=${newNonce()}`, { tls: { rejectUnauthorized: false } })
    ).text()
    await using proxy = await startProxy(
      () => gateway.url,
      ({ url }, forward) => (url.includes('/attestation') ? new Response(recorded, { headers: json }) : forward()),
    )
    relay.lead(proxy.port)
    const { error } = await page.ask({ do: 'chat' })
    expect([error?.names, error?.failed]).toEqual([['APIConnectionError', 'VerificationError'], ['attestation-nonce']])
  })

  test('redirects is not followed', async () => {
    await using proxy = await startProxy(
      () => gateway.url,
      ({ method }, forward) => (method === 'GET' ? forward() : Response.redirect('/v1/other', 307)),
    )
    relay.lead(proxy.port)
    expect((await page.ask({ do: 'chat' })).error?.names.slice(0, 2)).toEqual(['APIConnectionError', 'ConnectionError'])
    expect(proxy.seen.map(item => item.path)).toEqual(['/attestation', '/workload.json', '/v1/chat/completions'])
  })
})

describe('the modules for pages', () => {
  // Goal: they import each other and nothing else: neither at their top nor later, and nothing of Bun's or Node's.
  test('imports', () => {
    const folder = join(project.folder, 'node_modules/@strongroom/verifier/web')
    const builtin = new Set(['bun', ...builtinModules])
    for (const file of readdirSync(folder)) {
      const source = readFileSync(join(folder, file), 'utf8')
      for (const { path } of new Bun.Transpiler().scanImports(source)) expect(path).toMatch(/^\.\/chunk-[a-z0-9]+\.js$/)
      expect(source).not.toMatch(/["'`](?:node|bun):/)
      expect(importsOf(source).filter(({ specifier }) => builtin.has(specifier))).toEqual([])
    }
  })

  // Goal: they do not run where keys can be pinned, so that a wrong choice of a bundler is no quiet loss.
  test('in Bun', () => {
    expect(() => createWebTransport({ ca: undefined, connectTimeoutMs: 1, idleTimeoutMs: 1 })).toThrow(OptionError)
  })
})
