// The endpoint before a plain HTTP server in place of the gateway: forwarding, limits and endings.

import { expect, test } from 'bun:test'
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { expectationBytesMax } from '../../../src/guest/gateway/expectation.codec.ts'
import { endpointLimits } from '../../../src/verifier/fetch/endpoint/endpoint.ts'
import { openSocket } from '../../rigs/gateway/socket.ts'

const plain = { kind: 'unattested', why: 'elsewhere', ca: null } as const

async function startBehind(handle: (request: Request) => Response | Promise<Response>) {
  const server = Bun.serve({ hostname: '127.0.0.1', port: 0, development: false, idleTimeout: 60, fetch: handle })
  const endpoint = await startEndpoint({ baseUrl: `http://127.0.0.1:${server.port}/v1`, gateway: plain })
  return {
    endpoint,
    [Symbol.asyncDispose]: async () => {
      await endpoint[Symbol.asyncDispose]()
      await server.stop(true)
    },
  }
}

// Goal: method, path, query, body and the caller's headers arrive unchanged, hop-by-hop headers do not; only /v1 and
// /health pass.
test('what passes', async () => {
  const seen: { url: string; method: string; headers: Headers; body: string }[] = []
  await using rig = await startBehind(async request => {
    seen.push({ url: request.url, method: request.method, headers: request.headers, body: await request.text() })
    return new Response('{"ok":true}', {
      status: 201,
      headers: { 'content-type': 'application/json', 'x-request-id': 'r1', connection: 'x-private', 'x-private': '1' },
    })
  })
  const { url } = rig.endpoint
  const headers = { 'x-api-key': 'k', authorization: 'Bearer b', te: 'trailers', 'x-stainless-retry-count': '1' }
  const response = await fetch(`${url}/v1/a%2Fb/c?d=e%20f`, { method: 'POST', headers, body: 'text' })
  expect([response.status, await response.text(), response.headers.get('x-request-id')]).toEqual([
    ...[201, '{"ok":true}', 'r1'],
  ])
  expect(response.headers.has('x-private')).toBe(false)
  expect(seen).toHaveLength(1)
  const [request] = seen
  expect([
    request?.method,
    new URL(request?.url ?? '').pathname,
    new URL(request?.url ?? '').search,
    request?.body,
  ]).toEqual([...['POST', '/v1/a%2Fb/c', '?d=e%20f', 'text']])
  expect([...(request?.headers.keys() ?? [])]).toEqual(
    expect.arrayContaining(['authorization', 'x-api-key', 'x-stainless-retry-count']),
  )
  expect(request?.headers.has('te')).toBe(false)
  expect((await fetch(`${url}/health`)).status).toBe(201)
  for (const path of ['/', '/v1', '/metrics', '/v1/../metrics', '/v1/%2e%2e/metrics', '/attestation', '/healthy']) {
    expect([path, (await fetch(`${url}${path}`)).status]).toEqual([path, 404])
  }
  expect((await fetch(`${url}/v1/models`, { method: 'PUT', body: 'x' })).status).toBe(405)
  expect(seen).toHaveLength(2)
})

// Goal: an agent that tries a WebSocket first sees at once that there is none; the gateway is not asked.
test('a WebSocket', async () => {
  let asked = 0
  await using rig = await startBehind(() => {
    asked += 1
    return new Response('{}')
  })
  const text = await new Promise<string>((resolve, reject) => {
    let all = ''
    const fields =
      'Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n'
    const socket = openSocket(rig.endpoint.url, () => {
      socket.write(`GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n${fields}\r\n`)
    })
    socket.on('data', bytes => {
      all += bytes
      if (all.endsWith('}')) socket.destroy()
    })
    socket.on('close', () => resolve(all))
    socket.on('error', reject)
  })
  expect(text).toStartWith('HTTP/1.1 426 ')
  expect(text).toContain('"code":"upgrade_required"')
  expect(asked).toBe(0)
})

// Goal: a stream passes piece by piece; a client that leaves ends the request at the gateway; a broken stream says so.
test('streams', async () => {
  let isLeft = false
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  await using rig = await startBehind(request => {
    request.signal.addEventListener('abort', () => {
      isLeft = true
    })
    const body = new ReadableStream<Uint8Array>({ start: controller => void streams.push(controller) })
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  })
  const write = (at: number, text: string) => streams[at]?.enqueue(new TextEncoder().encode(text))
  const begin = async (at: number, signal?: AbortSignal) => {
    const init = { method: 'POST', body: '{}', ...(signal ? { signal } : {}) }
    const asked = fetch(`${rig.endpoint.url}/v1/chat/completions`, init)
    await until('the request is there', 15_000, () => streams.length > at)
    write(at, 'data: 1\n\n')
    return (await asked).body?.getReader()
  }
  const leaving = new AbortController()
  const first = await begin(0, leaving.signal)
  const read = async (of: typeof first) => new TextDecoder().decode((await of?.read())?.value)
  expect(await read(first)).toBe('data: 1\n\n')
  write(0, 'data: 2\n\n')
  expect(await read(first)).toBe('data: 2\n\n')
  leaving.abort()
  await until('the gateway sees it', 15_000, () => isLeft)

  const second = await begin(1)
  expect(await read(second)).toBe('data: 1\n\n')
  streams[1]?.error(new Error('gone'))
  expect(await read(second)).toMatch(/^data: \{"error":\{"message":"The gateway at .*did not answer in full/)
  expect((await second?.read())?.done).toBe(true)
})

// Goal: four methods pass, and another one reaches no gateway.
test('methods', async () => {
  const seen: string[] = []
  await using rig = await startBehind(({ method }) => {
    seen.push(method)
    return new Response('{}')
  })
  const statusOf = async (method: string) => (await fetch(`${rig.endpoint.url}/v1/models`, { method })).status
  for (const method of ['GET', 'HEAD', 'POST', 'DELETE'])
    expect([method, await statusOf(method)]).toEqual([method, 200])
  for (const method of ['PUT', 'PATCH', 'OPTIONS']) expect([method, await statusOf(method)]).toEqual([method, 405])
  expect(seen).toEqual(['GET', 'HEAD', 'POST', 'DELETE'])
})

test('goal: the limits, written out', () => {
  const bytes = { bodyBytesMax: 33_554_432, heldBytesMax: 50_331_648 }
  expect(endpointLimits).toEqual({ requestsMax: 64, ...bytes, bodyTimeoutMs: 30_000 })
})

// Goal: requests, bodies and what is held of them at a time are bounded, and a refusal says so.
test('bounds', async () => {
  const held: ((response: Response) => void)[] = []
  await using rig = await startBehind(() => new Promise<Response>(resolve => void held.push(resolve)))
  const { url } = rig.endpoint
  const waiting = Array.from({ length: endpointLimits.requestsMax }, () => fetch(`${url}/v1/models`))
  await until('all are there', 10_000, () => held.length === endpointLimits.requestsMax)
  const refused = await fetch(`${url}/v1/models`)
  expect([refused.status, refused.headers.get('x-should-retry')]).toEqual([429, 'true'])
  for (const answer of held.splice(0)) answer(new Response('{}'))
  for (const response of await Promise.all(waiting)) expect(response.status).toBe(200)
  const large = new Uint8Array(endpointLimits.bodyBytesMax + 1)
  const tooLarge = await fetch(`${url}/v1/chat/completions`, { method: 'POST', body: large }).then(
    ({ status }) => status,
    () => 413,
  )
  expect(tooLarge).toBe(413)
  expect(held).toHaveLength(0)
  // All room is given back.
  const after = fetch(`${url}/v1/models`)
  await until('one more is there', 15_000, () => held.length === 1)
  held[0]?.(new Response('{}'))
  expect((await after).status).toBe(200)
})

// Goal: whatever file the login user puts in the policy's place, nothing is sent, nothing hangs, and the refusal names
// the file.
test('a policy that cannot be read', async () => {
  let requests = 0
  await using rig = await startBehind(() => {
    requests += 1
    return new Response('{}')
  })
  const { paths, prompt } = rig.endpoint
  const own = paths.ownGateway
  for (const plant of [
    () => writeFileSync(own, '{'),
    () => writeFileSync(own, 'x'.repeat(expectationBytesMax + 1)),
    () => symlinkSync('/etc/passwd', own),
    () => symlinkSync('/nonexistent', own),
    () => mkdirSync(own),
    () => void Bun.spawnSync(['mkfifo', own]),
  ]) {
    plant()
    const { status, text } = await prompt()
    expect([plant.toString(), status, JSON.parse(text).error.message]).toEqual([
      plant.toString(),
      424,
      expect.stringMatching(/^Your prompt was not sent: .*(your policy|gateway\.json)/),
    ])
    rmSync(own, { recursive: true })
  }
  expect(requests).toBe(0)
  expect((await prompt()).status).toBe(200)
  // Without the claim's document there is no gateway at all.
  rmSync(paths.gatewaySettings)
  expect((await prompt()).status).toBe(424)
  expect(requests).toBe(1)
})
