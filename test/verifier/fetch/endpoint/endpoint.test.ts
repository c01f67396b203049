// The endpoint before a gateway that a test scripts: what it leaves out of responses, and its end.

import { expect, test } from 'bun:test'
import { connect, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { until } from '../../../../scripts/rigs/until.ts'
import { Endpoint, type Sender } from '../../../../src/verifier/fetch/endpoint/endpoint.ts'
import { listenOnLoopback } from '../../../../src/verifier/fetch/endpoint/listen.ts'
import { faultOf } from '../../../rigs/fault-of.ts'

const advice = { verify: 'verify', change: 'change', where: 'here' }

function serve(send: Sender['send'], bodyTimeoutMs?: number) {
  const warnings: unknown[] = []
  const endpoint = new Endpoint({
    access: () => ({ baseUrl: new URL('https://gateway.example/v1'), sender: { send, close: () => {} } }),
    advice,
    log: { warn: (message, fields) => void warnings.push({ message, ...fields }) },
    ...(bodyTimeoutMs === undefined ? {} : { bodyTimeoutMs }),
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

/** Sends the head of a request that announces a body, and its first byte. */
async function stalled(port: number, announcedBytes: number) {
  const socket = connect(port, '127.0.0.1')
  const text = Promise.withResolvers<string>()
  socket.once('data', data => text.resolve(String(data)))
  socket.on('error', () => {})
  socket.write(`POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${announcedBytes}\r\n\r\n{`)
  return { socket, text: text.promise }
}

// Goal: a program without a key takes no room with a length that it announces alone; bytes that came count.
test('announced bodies hold no room', async () => {
  const { endpoint, listening, url } = serve(async () => new Response('ok'))
  await using _ = listening
  const sockets: Socket[] = []
  for (const sizeBytes of [32 << 20, 32 << 20, 32 << 20])
    sockets.push((await stalled(listening.port, sizeBytes)).socket)
  await until('all are read', 10_000, () => endpoint.requestCount === 3)
  expect((await fetch(`${url}/v1/x`, { method: 'POST', body: '{}' })).status).toBe(200)
  const [first, second] = sockets
  first?.write(new Uint8Array(30 << 20))
  second?.write(new Uint8Array(17 << 20))
  const send = async () => (await fetch(`${url}/v1/x`, { method: 'POST', body: new Uint8Array(2 << 20) })).status
  await until('received bytes are counted', 30_000, async () => (await send()) === 429)
  for (const socket of sockets) socket.destroy()
  await until('room is given back', 30_000, async () => (await send()) === 200)
})

// Goal: a body that does not come frees its request's place, and the client learns why.
test('a body that never comes', async () => {
  const { endpoint, listening } = serve(async () => new Response('ok'), 50)
  await using _ = listening
  const { socket, text } = await stalled(listening.port, 100)
  expect(await text).toStartWith('HTTP/1.1 408 ')
  expect(endpoint.requestCount).toBe(0)
  socket.destroy()
})

// Goal: whoever ends the server once it is drained cuts no response off: each is over before.
test.each([
  ['a stream', () => new Response(new Blob(['data']).stream())],
  ['a whole response', () => new Response(null, { status: 204 })],
  ['a refusal', () => Promise.reject(new Error('broken'))],
])('%s ends before the endpoint is drained', async (_, send) => {
  const { endpoint, listening, url } = serve(async () => await send())
  await using __ = listening
  const order: string[] = []
  const request = new Request(`${url}/v1/x`, { headers: { host: new URL(url).host } })
  const handled = endpoint.handle(request, () => {})
  expect(endpoint.requestCount).toBe(1)
  const drained = endpoint.drain().then(() => order.push('drained'))
  const response = await handled
  if (response.body === null || response.status === 500) order.push('over')
  else await response.body.pipeTo(new WritableStream()).then(() => order.push('over'))
  await drained
  expect(order).toEqual(['over', 'drained'])
})
