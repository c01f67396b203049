// Goal: whoever ends TLS between a client of the package and the gateway, as the host may, can use no encrypted body a
// second time: not under a key of its own, not under the client's, not on another path, not as an unbound body.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { CALLER } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type AttestedFetch, createAttestedFetch } from '../../../src/verifier/fetch/attested-fetch.ts'
import { createNodeTransport } from '../../../src/verifier/fetch/node-transport.ts'
import { portableCrypto } from '../../../src/verifier/fetch/portable-crypto.ts'
import { startProxy, type Proxy as TlsProxy } from '../../rigs/tls-peers.ts'

/** The client's key, and one that the host has made for itself. */
const CLIENT_KEY = `gw_client00_${'a1'.repeat(16)}`
const HOST_KEY = `gw_host0000_${'b2'.repeat(16)}`
const prompt = { model: 'tiny', input: 'the secret prompt' }

let upstream: TestUpstream
let gateway: AttestedGateway
let proxy: TlsProxy
let fetchAttested: AttestedFetch
/** Answers in the place of the gateway; null if every request is passed on. */
let instead: (() => Response | Promise<Response>) | null = null
let ca = ''
const undo = new AsyncDisposableStack()

beforeAll(async () => {
  undo.defer(clearRig)
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  const keys: Record<string, string> = { [`Bearer ${CLIENT_KEY}`]: 'client00', [`Bearer ${HOST_KEY}`]: 'host0000' }
  const authenticate = (headers: Pick<Headers, 'get'>) => {
    const keyPrefix = keys[headers.get('authorization') ?? '']
    if (keyPrefix === undefined) throw new Fault('unauthenticated', 'The API key is missing or invalid.')
    return { ...CALLER, keyPrefix, organizationId: keyPrefix }
  }
  gateway = undo.use(await startAttestedGateway(upstream, { authenticate }))
  const { pair } = gateway
  const answer = (request: Request, forward: () => Promise<Response>) =>
    request.method === 'POST' && instead !== null ? instead() : forward()
  proxy = undo.use(await startProxy(() => gateway.url, answer, { pair }))
  const options = await attestedOptions()
  ca = options.ca
  const url = `https://127.0.0.1:${proxy.port}`
  const deps = {
    createTransport: createNodeTransport,
    clock: systemClock,
    random: systemRandom,
    crypto: portableCrypto,
  }
  fetchAttested = createAttestedFetch({ ...options, url }, deps)
  undo.defer(fetchAttested.close)
}, 120_000)
afterAll(() => undo.disposeAsync())
beforeEach(() => {
  instead = null
  proxy.seen.length = 0
  upstream.seen.length = 0
})

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  fetchAttested(`https://127.0.0.1:${proxy.port}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${CLIENT_KEY}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })

/** The last encrypted request that the proxy saw. */
function captured() {
  const last = proxy.seen.filter(({ headers }) => headers.has('ehbp-encapsulated-key')).at(-1)
  if (last === undefined) throw new Error('no encrypted request came')
  return { path: last.path, headers: new Headers(last.headers), body: Buffer.from(last.body, 'latin1') }
}

type Captured = ReturnType<typeof captured>

type How = { readonly path?: string; readonly key?: string; readonly without?: string }

async function resend(sent: Captured, how: How = {}) {
  const { response: _, ...answer } = await resent(sent, how)
  return answer
}

async function resent({ headers: given, body }: Captured, how: How) {
  const { path = '/v1/responses', key = CLIENT_KEY, without = '' } = how
  const headers = new Headers(given)
  headers.set('authorization', `Bearer ${key}`)
  if (without !== '') headers.delete(without)
  const response = await fetch(gateway.url + path, { method: 'POST', headers, body, tls: { ca } })
  return { response, status: response.status, isSealed: response.headers.has('ehbp-response-nonce') }
}

describe('a body that the client has sent', () => {
  // Goal: it reaches the upstream once, whatever the host makes of it.
  test.each([
    ['under a key of the host', { key: HOST_KEY }, 422],
    ['again as it was', {}, 400],
    ['to another API', { path: '/v1/chat/completions' }, 422],
    ['with a query', { path: '/v1/responses?a=b' }, 422],
    ['as an unbound body', { without: 'x-strongroom-request-nonce' }, 422],
    ['as an unbound body under a key of the host', { without: 'x-strongroom-request-nonce', key: HOST_KEY }, 422],
  ])('is refused %s', async (_, how, status) => {
    const response = await post('/v1/responses', prompt)
    expect(response.status).toBe(200)
    await response.text()
    expect(upstream.seen.length).toBe(1)
    // A body that does not open is refused in the clear. The refusal of a replay is sealed to the client.
    for (let i = 0; i < 2; i += 1) expect(await resend(captured(), how)).toEqual({ status, isSealed: status === 400 })
    expect(upstream.seen.length).toBe(1)
  })

  test('goal: is refused under a key of the host, too, where the host sends it first', async () => {
    instead = () => new Response(null, { status: 502 })
    await (await post('/v1/responses', prompt)).text()
    const held = captured()
    expect((await resend(held, { key: HOST_KEY })).status).toBe(422)
    expect((await resend(held, { path: '/v1/messages' })).status).toBe(422)
    expect(upstream.seen).toEqual([])
    // The host delivers it late, once.
    expect([(await resend(held)).status, (await resend(held)).status]).toEqual([200, 400])
    expect(upstream.seen.length).toBe(1)
  })

  test('goal: is taken once of many copies at the same time', async () => {
    instead = () => new Response(null, { status: 502 })
    await (await post('/v1/responses', prompt)).text()
    const held = captured()
    const answers = await Promise.all(Array.from({ length: 8 }, () => resend(held)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400, 400, 400, 400, 400, 400])
    expect(upstream.seen.length).toBe(1)
  })
})

test('goal: a body for one gateway opens at no other', async () => {
  await (await post('/v1/responses', prompt)).text()
  await using other = await startAttestedGateway(upstream, { pair: gateway.pair, authenticate: () => CALLER })
  const { headers, body } = captured()
  const response = await fetch(`${other.url}/v1/responses`, { method: 'POST', headers, body, tls: { ca } })
  expect(response.status).toBe(422)
  expect(upstream.seen.length).toBe(1)
})

// Goal: the client takes no answer to another request for one to its own, although the gateway has sealed it.
test.each([
  ['on another path', { path: '/v1/nothing' }, 404],
  ['under another key', { key: 'gw_nobody00_x' }, 401],
])('the gateway’s sealed answer to the same body %s does not open', async (_, how, status) => {
  const answers: unknown[] = []
  instead = async () => {
    const { response, ...answer } = await resent(captured(), how)
    answers.push(answer)
    return response
  }
  await expect(post('/v1/responses', prompt)).rejects.toThrow('cannot be opened')
  expect(answers).toEqual([{ status, isSealed: true }])
})

// Goal: a client's own repetition is a new body, so that it is taken.
describe('a repetition by the client of', () => {
  const failOnce = () => {
    let count = 0
    instead = () => {
      count += 1
      if (count === 2) instead = null
      return Response.json({ error: { message: 'try again' } }, { status: 503, headers: { 'retry-after-ms': '1' } })
    }
  }
  const bodies = () => proxy.seen.filter(({ headers }) => headers.has('ehbp-encapsulated-key'))

  function expectFresh() {
    const sent = bodies()
    const nonces = sent.map(({ headers }) => headers.get('x-strongroom-request-nonce'))
    expect([sent.length, new Set(nonces).size, new Set(sent.map(({ body }) => body)).size]).toEqual([3, 3, 3])
    expect(new Set(sent.map(({ headers }) => headers.get('ehbp-encapsulated-key'))).size).toBe(1)
  }

  test('OpenAI', async () => {
    failOnce()
    const baseURL = `https://127.0.0.1:${proxy.port}/v1`
    const client = new OpenAI({ apiKey: CLIENT_KEY, baseURL, fetch: fetchAttested, maxRetries: 2 })
    const { output_text } = await client.responses.create(prompt)
    expect(output_text).toBe('Grüße 👋 you')
    expectFresh()
  })

  test('Anthropic', async () => {
    failOnce()
    const baseURL = `https://127.0.0.1:${proxy.port}`
    // By x-api-key, which counts where there is no Authorization.
    const client = new Anthropic({ apiKey: CLIENT_KEY, authToken: null, baseURL, fetch: fetchAttested, maxRetries: 2 })
    const messages = [{ role: 'user' as const, content: 'Hello' }]
    const message = await client.messages.create({ model: 'tiny', max_tokens: 100, messages })
    expect(message.content.at(-1)).toMatchObject({ type: 'text', text: 'Grüße 👋 you' })
    expectFresh()
  })
})
