// The endpoint before a gateway that a test scripts: what it leaves out of responses, and its end.

import { expect, test } from 'bun:test'
import { networkInterfaces } from 'node:os'
import { until } from '../../../../scripts/rigs/until.ts'
import { Endpoint, type Sender } from '../../../../src/verifier/fetch/endpoint/endpoint.ts'
import { listenOnLoopback } from '../../../../src/verifier/fetch/endpoint/listen.ts'
import { faultOf } from '../../../rigs/fault-of.ts'

const advice = { verify: 'verify', change: 'change', where: 'here' }

function serve(send: Sender['send']) {
  const warnings: unknown[] = []
  const endpoint = new Endpoint({
    access: () => ({ baseUrl: new URL('https://gateway.example/v1'), sender: { send, close: () => {} } }),
    advice,
    log: { warn: (message, fields) => void warnings.push({ message, ...fields }) },
  })
  const listening = listenOnLoopback(endpoint, { hostname: '127.0.0.1', port: 0 })
  return { endpoint, listening, warnings, url: `http://127.0.0.1:${listening.port}` }
}

// Goal: what a gateway lets its own pages read, no page may read here.
test('headers about other origins are not passed on', async () => {
  const headers = { 'access-control-allow-origin': '*', 'access-control-expose-headers': 'x', 'x-request-id': 'r' }
  const { listening, url } = serve(async () => new Response('{}', { headers }))
  await using _ = listening
  const response = await fetch(`${url}/v1/models`)
  expect([response.status, response.headers.get('x-request-id')]).toEqual([200, 'r'])
  expect([...response.headers.keys()].filter(name => name.startsWith('access-control'))).toEqual([])
})

// Goal: the log has the path and the reason, and neither what the client sent nor its key.
test('a refusal is logged without the request', async () => {
  const { listening, url, warnings } = serve(() => Promise.reject(new Error('broken')))
  await using _ = listening
  const headers = { authorization: 'Bearer secret-key', 'x-api-key': 'secret-key' }
  const response = await fetch(`${url}/v1/messages?secret-query`, { method: 'POST', body: 'secret-prompt', headers })
  expect(response.status).toBe(500)
  const message = 'The request failed here: broken. What to do: verify'
  expect(await response.json()).toEqual({ type: 'error', error: { type: 'api_error', message } })
  expect(warnings).toEqual([{ message: 'request refused', path: '/v1/messages', code: 'internal', reason: message }])
})

// Goal: a response that runs when the end begins comes whole, and a new request is refused so that its client may try
// again.
test('the end', async () => {
  const stream = Promise.withResolvers<ReadableStreamDefaultController<Uint8Array>>()
  const { endpoint, listening, url } = serve(
    async () => new Response(new ReadableStream<Uint8Array>({ start: stream.resolve }), { status: 200 }),
  )
  await using _ = listening
  const asked = fetch(`${url}/v1/models`)
  const controller = await stream.promise
  controller.enqueue(new TextEncoder().encode('one '))
  const response = await asked
  let isDrained = false
  const drained = endpoint.drain().then(() => {
    isDrained = true
  })
  const refused = await fetch(`${url}/v1/models`)
  const { error } = (await refused.json()) as { error: { code: string } }
  expect([refused.status, refused.headers.get('x-should-retry'), error.code, isDrained]).toEqual([
    ...[503, 'true', 'ending', false],
  ])
  controller.enqueue(new TextEncoder().encode('two'))
  controller.close()
  expect(await response.text()).toBe('one two')
  await until('it is drained', 10_000, () => isDrained)
  await drained
  // Without a request under way there is nothing to wait for.
  await endpoint.drain()
})

// Goal: no address of this machine but the one that was named leads to it, so no other machine can reach it.
test('one address', async () => {
  const { listening, url } = serve(async () => new Response('{}'))
  await using _ = listening
  expect((await fetch(`${url}/v1/models`)).status).toBe(200)
  const addresses = Object.values(networkInterfaces()).flatMap(all => all ?? [])
  const others = addresses.filter(({ address }) => address !== '127.0.0.1').map(({ address }) => address)
  for (const address of ['127.0.0.2', ...others]) {
    const host = address.includes(':') ? `[${address}]` : address
    const isReached = await fetch(`http://${host}:${listening.port}/health`).then(
      () => true,
      () => false,
    )
    expect([address, isReached]).toEqual([address, false])
  }
})

// Goal: a port that another program has is named.
test('a port that is taken', async () => {
  const { endpoint, listening } = serve(async () => new Response('{}'))
  await using _ = listening
  const fault = faultOf(() => listenOnLoopback(endpoint, { hostname: '127.0.0.1', port: listening.port }))
  expect([fault.code, fault.message]).toEqual([
    'host.unsupported',
    expect.stringContaining(`listen on 127.0.0.1 port ${listening.port}: `),
  ])
})
