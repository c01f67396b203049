// Which web pages may read what: every page the evidence, the configured origins what needs a key, and none with
// credentials.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { chatBody, KEY, startHostGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'

const page = 'https://app.example'
let upstream: TestUpstream
let undo: AsyncDisposableStack

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

function gatewayFor(corsOrigins: readonly string[]): TestGateway {
  return undo.use(startHostGateway([target(upstream.url)], { limits: { corsOrigins: [...corsOrigins] } }))
}

const corsOf = (response: Response) => ({
  status: response.status,
  origin: response.headers.get('access-control-allow-origin'),
  credentials: response.headers.get('access-control-allow-credentials'),
})

const preflight = (url: string, origin: string) =>
  fetch(url, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST' } })

const get = (url: string, origin: string) => fetch(url, { headers: { origin, authorization: `Bearer ${KEY}` } })

// Goal: evidence is for every page, also for one without an origin of its own.
test('public routes', async () => {
  const { url } = gatewayFor([])
  for (const path of ['/health', '/attestation', '/workload.json', '/.well-known/hpke-keys', '/openapi.json', '/x']) {
    for (const origin of [page, 'null']) {
      expect(corsOf(await get(url + path, origin))).toMatchObject({ origin: '*', credentials: null })
      expect(corsOf(await preflight(url + path, origin))).toEqual({ status: 204, origin: '*', credentials: null })
    }
  }
  expect(corsOf(await fetch(`${url}/health`)).origin).toBeNull()
})

// Goal: what needs a key is for the pages that the operator names, by their whole origin; refusals can be read, too.
test('configured origins', async () => {
  const gateway = gatewayFor([page])
  for (const path of ['/v1/models', '/v1/chat/completions', '/v1/nowhere']) {
    const url = gateway.url + path
    expect(corsOf(await preflight(url, page))).toEqual({ status: 204, origin: page, credentials: null })
    expect(corsOf(await get(url, page))).toMatchObject({ origin: page, credentials: null })
    for (const origin of [
      'null',
      'https://evil.example',
      `${page}.evil.example`,
      'http://app.example',
      `${page}:444`,
    ]) {
      expect(corsOf(await preflight(url, origin))).toEqual({ status: 401, origin: null, credentials: null })
      expect(corsOf(await get(url, origin)).origin).toBeNull()
    }
  }
  const stranger = await fetch(`${gateway.url}/v1/models`, { headers: { origin: page } })
  expect(corsOf(stranger)).toEqual({ status: 401, origin: page, credentials: null })
  const answer = await gateway.post('/v1/chat/completions', chatBody({ stream: true }), { headers: { origin: page } })
  expect([answer.headers.get('vary'), answer.headers.get('access-control-expose-headers')]).toEqual(['Origin', '*'])
  expect(await answer.text()).toContain('[DONE]')
})

// Goal: without configuration no page may, and "*" means any page, with a key that the page has.
test('none, and any', async () => {
  const none = gatewayFor([])
  expect(corsOf(await preflight(`${none.url}/v1/models`, page))).toEqual({
    status: 401,
    origin: null,
    credentials: null,
  })
  expect(corsOf(await get(`${none.url}/v1/models`, page)).origin).toBeNull()
  const any = gatewayFor(['*'])
  for (const origin of [page, 'null']) {
    expect(corsOf(await preflight(`${any.url}/v1/models`, origin))).toMatchObject({ status: 204, origin: '*' })
    expect(corsOf(await get(`${any.url}/v1/models`, origin))).toMatchObject({
      status: 200,
      origin: '*',
      credentials: null,
    })
  }
})
