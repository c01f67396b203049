// Clients that stop reading, or read slowly; events as large as they may be.

import { expect, test } from 'bun:test'
import type { Socket } from 'bun'
import { countedDeadlines } from '../../../../scripts/rigs/gateway/raw-upstream.ts'
import { chatBody, KEY, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { viewOf } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import { type Behaviour, delta, openSse, sse, startUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { present } from '../../../../src/base/assert.ts'
import { utf8 } from '../../../../src/base/bytes.ts'
import { openStream } from '../../../../src/inference/gateway/streams/stream.ts'
import { parseRequest } from '../../../../src/inference/openai/request.ts'
import type { BodySink, UpstreamResponse } from '../../../../src/inference/upstream/connection.ts'
import { eventsOf } from '../../../rigs/gateway/openai-schema.ts'
import { startRealGateway } from '../../../rigs/gateway/real-gateway.ts'
import { trustedCa } from '../../../rigs/gateway/socket.ts'

const MIB = 1024 * 1024
const stallTimeoutMs = 400
/** Where nothing stalls. */
const patient = { firstByteTimeoutMs: 60_000, idleTimeoutMs: 60_000, stallTimeoutMs: 60_000 }
const LIMITS = { ...patient, responseBytesMax: 1_000 * MIB, eventBytesMax: 2 * MIB, stallTimeoutMs }

/** Events of a size, as fast as they are taken, for a time or until the client has gone. */
function flood(bytes: number, forMs = Number.POSITIVE_INFINITY): Behaviour {
  const text = sse(delta({ content: 'x'.repeat(bytes) }))
  return async (response, _seen, gone) => {
    let isGone = false
    void gone.then(() => {
      isGone = true
    })
    openSse(response)
    const startMs = performance.now()
    while (!isGone && performance.now() - startMs < forMs) {
      if (!response.write(text)) await Promise.race([new Promise(resolve => response.once('drain', resolve)), gone])
    }
    if (!isGone) response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  }
}

type Client = AsyncDisposable & {
  readonly socket: Socket<undefined>
  readonly bytes: () => number
  readonly tail: () => string
  readonly closed: Promise<void>
}

/** A client that is only a socket, so that the test decides how much it reads. */
async function openClient(
  url: string,
  key: string,
  onBytes: (socket: Socket<undefined>, count: number) => void,
): Promise<Client> {
  const closed = Promise.withResolvers<void>()
  const body = JSON.stringify(chatBody({ stream: true }))
  let bytes = 0
  let tail = ''
  const { port, protocol } = new URL(url)
  const isTls = protocol === 'https:'
  const secured = Promise.withResolvers<void>()
  const socket = await Bun.connect<undefined>({
    hostname: '127.0.0.1',
    port: Number(port),
    ...(isTls ? { tls: { ca: trustedCa() } } : {}),
    socket: {
      handshake: () => secured.resolve(),
      data: (socket, arrived) => {
        bytes += arrived.length
        tail = (tail + arrived.toString('latin1')).slice(-64)
        onBytes(socket, arrived.length)
      },
      close: () => closed.resolve(),
      error: () => {},
    },
  })
  if (isTls) await secured.promise
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  return {
    socket,
    bytes: () => bytes,
    tail: () => tail,
    closed: closed.promise,
    [Symbol.asyncDispose]: async () => {
      socket.terminate()
    },
  }
}

// Goal: a client that stops reading loses its stream: slot, lease and upstream are free, and the ledger has one row,
// aborted.
test('a client that stalls', async () => {
  const upstream = await startUpstream(flood(65_536))
  // Long enough to be looked at before it is given up.
  await using gateway = await startRealGateway([target(upstream.url)], { ...LIMITS, stallTimeoutMs: 3_000 })
  const key = await gateway.addKey({ concurrencyMax: 1 })
  let isReading = false
  await using client = await openClient(gateway.url, key, socket => {
    if (!isReading) socket.pause()
  })
  await until('its stream has begun', 60_000, () => client.bytes() > 0 && upstream.active() === 1)
  expect((await viewOf(gateway)).running).toBe(1)
  await until('the slot is free', 60_000, async () => (await viewOf(gateway)).running === 0)
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  const { waiting, targets } = await viewOf(gateway)
  expect([waiting, targets[0]]).toEqual([0, { active: 0, ejected: false }])
  isReading = true
  client.socket.resume()
  await client.closed
  expect(client.tail()).not.toContain('[DONE]')
  // And stays free, with one row in the ledger.
  expect((await gateway.usage()).requests).toBe(1)
  expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['aborted'])
  await upstream.stop()
}, 60_000)

// Goal: a slow client that always reads something keeps its stream, though it takes far longer than the stall timeout.
test.each([65_536, MIB])(
  'a client that is slow: events of %d bytes',
  async size => {
    const patientMs = 4_000
    // By time: buffers of kernels between client and upstream have room for any count that a test could send.
    const upstream = await startUpstream(flood(size, 2 * patientMs))
    await using gateway = await startGateway([target(upstream.url)], {
      limits: { ...LIMITS, stallTimeoutMs: patientMs },
    })
    // Kernels tell of what was taken in steps of megabytes: a megabyte in 80 ms keeps well ahead of that.
    await using client = await openClient(gateway.url, KEY, (socket, count) => {
      socket.pause()
      // By what arrived: one read may bring megabytes.
      setTimeout(() => socket.resume(), Math.max(20, (count / MIB) * 80))
    })
    await until('its end', 60_000, async () => (await gateway.records()).length === 1)
    expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed'])
    await until('all of it', 60_000, () => client.tail().includes('[DONE]'))
    expect(client.bytes()).toBeGreaterThan(8 * MIB)
    await until('nothing runs', 60_000, async () => (await viewOf(gateway)).running === 0)
    await upstream.stop()
  },
  120_000,
)

// Goal: a client that waits for a slow upstream has not stalled.
test('an upstream that is slow', async () => {
  const upstream = await startUpstream(async response => {
    openSse(response)
    for (const content of ['a', 'b', 'c']) {
      response.write(sse(delta({ content })))
      await Bun.sleep(2 * stallTimeoutMs)
    }
    response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  })
  await using gateway = await startGateway([target(upstream.url)], { limits: LIMITS })
  expect(eventsOf(await (await gateway.chat({ stream: true })).text()).at(-1)).toBe('[DONE]')
  expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed'])
  await upstream.stop()
}, 60_000)

// Goal: events up to the limit arrive whole for every split of the bytes; one more byte ends the stream with an error
// event.
test('the largest events', async () => {
  const overhead = JSON.stringify(delta({ content: '' })).length + 'data: '.length
  const sizes = [MIB, 2 * MIB - overhead, MIB]
  const contents = sizes.map((size, at) => String.fromCharCode(97 + at).repeat(size))
  let more = ''
  const upstream = await startUpstream(async response => {
    openSse(response)
    for (const content of [...contents, more].filter(Boolean)) {
      const bytes = Buffer.from(sse(delta({ content })))
      for (let at = 0; at < bytes.length; at += 77_777) response.write(bytes.subarray(at, at + 77_777))
    }
    response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  })
  await using gateway = await startGateway([target(upstream.url)], {
    limits: { ...LIMITS, ...patient, eventBytesMax: 2 * MIB },
  })
  const contentOf = (event: string) => JSON.parse(event).choices[0].delta.content ?? ''
  const whole = eventsOf(await (await gateway.chat({ stream: true })).text())
  expect(whole.at(-1)).toBe('[DONE]')
  expect(whole.slice(0, -1).map(contentOf).join('') === contents.join('')).toBe(true)
  more = 'x'.repeat(2 * MIB - overhead + 1)
  const ended = eventsOf(await (await gateway.chat({ stream: true })).text())
  expect(JSON.parse(ended.at(-1) ?? '').error.code).toBe('upstream_failed')
  expect(ended.slice(0, -1).map(contentOf).join('') === contents.join('')).toBe(true)
  expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed', 'failed'])
  await upstream.stop()
}, 60_000)

// Goal: however a stream ends, no deadline of it stays behind to keep it in memory; while it runs there is one.
test.each(['completed', 'aborted', 'failed'] as const)('deadlines of one that is %s', async how => {
  const deadlines = countedDeadlines()
  const client = new AbortController()
  const first = [utf8(sse(delta({ content: 'Hi' })))]
  let sink: BodySink | null = null
  const upstream: UpstreamResponse = {
    head: {
      status: 200,
      contentType: 'text/event-stream',
      contentEncoding: '',
      contentLength: null,
      retryAfterSeconds: null,
    },
    read: () => Promise.resolve(first.pop() ?? null),
    takeWhole: () => null,
    pushTo: given => {
      sink = given
      return { pause: () => {}, resume: () => {} }
    },
    abort: () => {},
  }
  const { request } = parseRequest('chat', utf8(JSON.stringify(chatBody({ stream: true }))))
  const to = (): BodySink => sink ?? expect.unreachable('the stream takes what comes')
  const ended = Promise.withResolvers<string>()
  const { body } = await openStream(upstream, {
    deadlines,
    limits: { ...LIMITS, ...patient },
    plan: { request, id: 'chatcmpl-1', createdS: 7, schema: null, obfuscate: null, dialect: null },
    counts: { bounds: { promptTokensMax: 1, completionTokensMax: 1 }, promptEstimate: 1, showsCached: false },
    seal: null,
    onEnd: async ({ outcome }) => ended.resolve(outcome),
    signal: client.signal,
    readBy: 'reader',
    early: null,
  })
  expect(deadlines.pending()).toBe(1)
  const reader = present(body, 'nothing was sent before').getReader()
  await reader.read()
  expect(deadlines.pending()).toBe(1)
  if (how === 'aborted') client.abort()
  const last = Buffer.from(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  if (how === 'completed') to().onBytes(last, 0, last.length)
  if (how !== 'aborted') to().onEnd()
  while (how !== 'aborted' && !(await reader.read()).done);
  expect(await ended.promise).toBe(how)
  await until('none is left', 60_000, () => deadlines.pending() === 0)
})
