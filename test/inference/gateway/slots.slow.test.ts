// Slots of keys and leases of upstreams after many requests that were aborted or failed. The limiter is the real one.

import { expect, test } from 'bun:test'
import { chatBody, target } from '../../../scripts/rigs/gateway/server.ts'
import { viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { startRealGateway } from '../../rigs/gateway/real-gateway.ts'
import { openSocket } from '../../rigs/gateway/socket.ts'

const requestCount = 1_000
const clientCount = 16
const slots = 64

type Way = {
  /** The upstream's behaviour; null if it must not be asked. */
  readonly upstream: Behaviour | null
  readonly body?: string
  readonly stream: boolean
  readonly leave: 'never' | 'once-asked' | 'after-first-chunk'
  /** The upstream's connection ends when the client has the first chunk. */
  readonly cut?: boolean
  /** Status of the response, if the client stays. */
  readonly status?: number
}

const hang: Behaviour = () => {}
const oneChunk: Behaviour = response => {
  openSse(response)
  response.write(sse(delta({ content: 'x' })))
}

const WAYS = [
  { upstream: hang, stream: false, leave: 'once-asked' },
  { upstream: hang, stream: true, leave: 'once-asked' },
  { upstream: oneChunk, stream: true, leave: 'after-first-chunk' },
  { upstream: response => sendJson(response, 500, { error: 'x' }), stream: false, leave: 'never', status: 502 },
  { upstream: response => void response.socket?.destroy(), stream: true, leave: 'never', status: 502 },
  { upstream: oneChunk, stream: true, leave: 'never', cut: true, status: 200 },
  {
    upstream: response => void response.writeHead(200, { 'content-type': 'application/json' }).end('{'),
    stream: false,
    leave: 'never',
    status: 502,
  },
  { upstream: wellBehaved, stream: true, leave: 'never', status: 200 },
  { upstream: null, body: '{"model":', stream: false, leave: 'never', status: 400 },
  { upstream: null, body: JSON.stringify(chatBody({ model: 'other' })), stream: false, leave: 'never', status: 404 },
] as const satisfies readonly Way[]

// Goal: after 1,000 aborted and failed requests exactly the slots of the key and of the upstream are free.
test('slots are back after 1,000 aborts and errors', async () => {
  const asked = new Map<string, () => void>()
  const cuts = new Map<string, () => void>()
  await using upstream = await started((response, seen, gone) => {
    const id = String(seen.body.user)
    asked.get(id)?.()
    cuts.set(id, () => response.socket?.destroy())
    const way: Way | undefined = WAYS[Number(id) % WAYS.length]
    return (id === 'hang' ? hang : way?.upstream)?.(response, seen, gone)
  })
  const patient = { connectTimeoutMs: 20_000, firstByteTimeoutMs: 20_000, idleTimeoutMs: 20_000 }
  await using gateway = await startRealGateway([target(upstream.url, { concurrencyMax: slots })], {
    ...patient,
    ejectFailures: 1_000_000,
    queueMax: 0,
  })
  const key = await gateway.addKey({ concurrencyMax: slots })

  const runRequest = async (index: number) => {
    const way: Way = WAYS[index % WAYS.length] ?? WAYS[0]
    const id = String(index)
    const wasAsked = new Promise<void>(resolve => asked.set(id, resolve))
    const controller = new AbortController()
    const body = way.body ?? chatBody({ stream: way.stream, user: id })
    const answer = gateway.post('/v1/chat/completions', body, { key, signal: controller.signal })
    if (way.leave === 'once-asked') {
      await wasAsked
      controller.abort()
      await answer.catch(() => {})
      return
    }
    const response = await answer
    if (way.leave === 'after-first-chunk') {
      await response.body?.getReader().read()
      controller.abort()
      return
    }
    expect([index % WAYS.length, response.status]).toEqual([index % WAYS.length, way.status ?? 0])
    const reader = response.body?.getReader()
    if (way.cut) {
      await reader?.read()
      cuts.get(id)?.()
    }
    while (!((await reader?.read())?.done ?? true));
  }
  let next = 0
  const client = async () => {
    for (let index = next++; index < requestCount; index = next++) await runRequest(index)
  }
  await Promise.all(Array.from({ length: clientCount }, client))
  // Half a body and then nothing more: these never were requests.
  for (let count = 0; count < clientCount; count += 1) await cutBody(gateway.url, key)

  const isFree = async () => upstream.active() === 0 && (await viewOf(gateway)).running === 0
  await until('every slot is free', 15_000, isFree)
  const { waiting, targets } = await viewOf(gateway)
  expect([waiting, targets[0]]).toEqual([0, { active: 0, ejected: false }])
  const usage = await gateway.usage()
  expect(usage.requests).toBe((requestCount * WAYS.filter(way => way.upstream !== null).length) / WAYS.length)

  const leaving = new AbortController()
  const hanging = Array.from({ length: slots }, () =>
    gateway.post('/v1/chat/completions', chatBody({ user: 'hang' }), { key, signal: leaving.signal }).catch(() => null),
  )
  await until('all slots can be taken', 15_000, () => upstream.active() === slots)
  const refused = await gateway.post('/v1/chat/completions', chatBody({ user: 'hang' }), { key })
  expect([refused.status, refused.headers.has('retry-after')]).toEqual([429, true])
  expect(upstream.activeMax()).toBe(slots)
  leaving.abort()
  await Promise.all(hanging)
  await until('every slot is free again', 15_000, isFree)
}, 60_000)

async function started(behave: Behaviour) {
  const upstream = await startUpstream(behave)
  return Object.assign(upstream, { [Symbol.asyncDispose]: upstream.stop })
}

function cutBody(url: string, key: string): Promise<void> {
  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Length: 500\r\n\r\n{"model"`
  return new Promise((resolve, reject) => {
    const socket = openSocket(url, () => {
      socket.write(head, () => socket.destroy())
    })
    socket.on('close', () => resolve())
    socket.on('error', reject)
  })
}

test('goal: an organization that fills upstream and queue with what never ends, by several keys, leaves another served as before', async () => {
  await using upstream = await started((response, seen, gone) =>
    (seen.body.user === 'hang' ? hang : wellBehaved)(response, seen, gone),
  )
  const patient = {
    connectTimeoutMs: 60_000,
    firstByteTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
    queueTimeoutMs: 60_000,
  }
  await using gateway = await startRealGateway([target(upstream.url, { concurrencyMax: 16 })], {
    ...patient,
    queueMax: 8,
  })
  const own = await Promise.all(Array.from({ length: 4 }, () => gateway.addKey({ organizationId: 'o1' })))
  const other = await gateway.addKey({ organizationId: 'o2' })
  const ask = () => gateway.post('/v1/chat/completions', chatBody({}), { key: other })
  expect((await ask()).status).toBe(200)
  const leaving = new AbortController()
  const statuses: number[] = []
  const flood = Array.from({ length: 64 }, (_, at) =>
    gateway
      .post('/v1/chat/completions', chatBody({ user: 'hang' }), { key: own[at % 4] ?? '', signal: leaving.signal })
      .then(({ status }) => void statuses.push(status))
      .catch(() => {}),
  )
  await until('upstream and queue are full', 15_000, () => statuses.length === 64 - 14 - 8 && upstream.active() === 14)
  expect([upstream.active(), new Set(statuses)]).toEqual([14, new Set([429])])
  // A request that waited for one of the flood would wait for longer than a test may take.
  for (let count = 0; count < 20; count += 1) expect((await ask()).status).toBe(200)
  leaving.abort()
  await Promise.all(flood)
})
