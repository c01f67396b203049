// Goal: with traces each admitted request is one trace at the OTLP receiver, however it ends, without any of its text;
// without traces there is none. Over real HTTP from client to receiver; in this process, because the test passes the
// tracer in.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { KEY, MODEL, startHostGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { TraceSettings } from '../../../src/contract/vm/workload.ts'
import { openCollector } from '../../../src/inference/traces/collector.ts'
import { TraceExporter } from '../../../src/inference/traces/exporter.ts'
import { createTracer } from '../../../src/inference/traces/tracer.ts'
import { type OtlpReceiver, type ReceivedSpan, startOtlpReceiver } from '../../rigs/gateway/otlp-receiver.ts'

const waitMs = 15_000
let undo: AsyncDisposableStack
let receiver: OtlpReceiver
let first: TestUpstream
let second: TestUpstream
beforeEach(async () => {
  undo = new AsyncDisposableStack()
  receiver = await startOtlpReceiver()
  undo.defer(receiver.stop)
  first = await startUpstream()
  undo.defer(() => first.stop())
  second = await startUpstream()
  undo.defer(() => second.stop())
})
afterEach(() => undo.disposeAsync())

function tracedGateway(changes: Partial<TraceSettings> = {}): TestGateway {
  const clock = systemClock
  const upstreams = [target(first.url, { name: 'first', weight: 1_000 }), target(second.url, { name: 'second' })]
  const exporter = new TraceExporter({
    deliver: openCollector({ endpoint: receiver.url, headers_file: '', ca_file: '' }, clock),
    names: {
      models: new Set([MODEL, 'unknown']),
      upstreams: new Map(
        upstreams.map(({ name, url }) => {
          return [name, { engine: 'openai', server: { address: '127.0.0.1', port: Number(new URL(url).port) } }]
        }),
      ),
    },
    queueMax: 1_000,
    batchMax: 100,
    intervalMs: 20,
    timeoutMs: 15_000,
    clock,
    random: systemRandom,
    log: silentLogger,
  })
  exporter.start()
  undo.defer(() => exporter.stop())
  const settings = { sampleRatio: 1, followParent: false, forwardParent: false, ...changes }
  const beginTrace = createTracer({ settings, offer: exporter.offer, clock, random: systemRandom })
  return undo.use(startHostGateway(upstreams, { host: { beginTrace } }))
}

/** All of the one trace, the request first. */
async function traceOf(attempts: number): Promise<[request: ReceivedSpan, ...attempts: ReceivedSpan[]]> {
  await until(`${attempts} attempts and their request are told`, waitMs, () => receiver.spans.length > attempts)
  expect(receiver.problems).toEqual([])
  const spans = receiver.spans.splice(0)
  const [request, ...others] = spans.filter(span => span.kind === 2)
  expect([others.length, spans.length]).toEqual([0, attempts + 1])
  if (request === undefined) throw new Error('there is no request')
  const tried = spans.filter(span => span.kind === 3).toSorted((a, b) => Number(a.startNs - b.startNs))
  for (const span of tried) {
    expect([span.traceId, span.parentSpanId]).toEqual([request.traceId, request.spanId])
    expect(span.startNs >= request.startNs && span.endNs <= request.endNs).toBe(true)
  }
  return [request, ...tried]
}

const of = (span: ReceivedSpan | undefined, ...names: string[]) => names.map(name => span?.attributes[name])
const parent = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00' }

test('goal: a whole and a streamed completion, with usage, finish reasons, upstream and the request id of the response', async () => {
  const gateway = tracedGateway()
  for (const stream of [false, true]) {
    const response = await gateway.chat({ stream }, { headers: parent })
    await response.text()
    const [request, attempt] = await traceOf(1)
    expect([request.traceId, request.parentSpanId]).toEqual(['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'])
    expect(request).toMatchObject({ name: `chat ${MODEL}`, status: 0 })
    expect(request.attributes).toMatchObject({
      'gen_ai.usage.input_tokens': 11,
      'gen_ai.usage.output_tokens': 3,
      'gen_ai.request.stream': stream,
      'gen_ai.response.finish_reasons': ['stop'],
      'http.response.status_code': 200,
      'strongroom.request.id': response.headers.get('x-request-id'),
      'strongroom.outcome': 'completed',
    })
    expect(typeof request.attributes['gen_ai.response.time_to_first_chunk']).toBe(stream ? 'number' : 'undefined')
    expect(of(attempt, 'server.address', 'server.port', 'error.type')).toEqual([
      '127.0.0.1',
      Number(new URL(first.url).port),
      undefined,
    ])
  }
  expect([...first.seen, ...second.seen].filter(seen => seen.headers.has('traceparent'))).toEqual([])
})

test('goal: a request of the Responses API is a chat like any other', async () => {
  const gateway = tracedGateway()
  for (const stream of [false, true]) {
    const response = await gateway.post('/v1/responses', { model: MODEL, input: 'Hello', stream })
    expect([response.status, (await response.text()).length > 0]).toEqual([200, true])
    const [request] = await traceOf(1)
    expect(request.name).toBe(`chat ${MODEL}`)
    expect(of(request, 'gen_ai.usage.input_tokens', 'gen_ai.response.finish_reasons', 'gen_ai.request.stream')).toEqual(
      [...[11, ['stop'], stream]],
    )
  }
})

test('goal: the upstream that failed is an attempt of its own, with why, and each upstream gets its own span where that is configured', async () => {
  const gateway = tracedGateway({ forwardParent: true })
  first.behave = response => sendJson(response, 500, { error: 'x' })
  expect((await gateway.chat({}, { headers: { ...parent, tracestate: 'vendor=canary', baggage: 'a=b' } })).status).toBe(
    200,
  )
  const [request, failed, good] = await traceOf(2)
  expect([of(failed, 'strongroom.upstream', 'error.type'), failed?.status]).toEqual([['first', 'status'], 2])
  expect([of(good, 'strongroom.upstream', 'error.type'), good?.status]).toEqual([['second', undefined], 0])
  expect([request.status, ...of(request, 'strongroom.upstream', 'error.type')]).toEqual([0, 'second', undefined])
  expect([first, second].map(upstream => upstream.seen[0]?.headers.get('traceparent'))).toEqual(
    [failed, good].map(span => `00-${request.traceId}-${span?.spanId}-01`),
  )
  expect(second.seen[0]?.headers.has('tracestate')).toBe(false)
  expect(second.seen[0]?.headers.has('baggage')).toBe(false)
})

test('goal: a failure of all upstreams, and one within a stream, are errors with their code', async () => {
  const gateway = tracedGateway()
  first.behave = second.behave = response => sendJson(response, 500, { error: 'x' })
  expect((await gateway.chat()).status).toBe(502)
  const [request, ...attempts] = await traceOf(2)
  expect([request.status, ...of(request, 'http.response.status_code', 'error.type')]).toEqual([
    2,
    502,
    'upstream_failed',
  ])
  expect(attempts.map(span => span.attributes['error.type'])).toEqual(['status', 'status'])

  first.behave = second.behave = response => {
    openSse(response)
    response.write(sse(delta({ content: 'x' })))
    setTimeout(() => response.end(), 20)
  }
  await (await gateway.chat({ stream: true })).text()
  const [cut, attempt] = await traceOf(1)
  expect([cut.status, ...of(cut, 'http.response.status_code', 'error.type', 'strongroom.outcome')]).toEqual([
    ...[2, 200, 'upstream_failed', 'failed'],
  ])
  expect([attempt?.status, ...of(attempt, 'error.type')]).toEqual([2, 'unfinished'])
})

test('goal: a request that is wrong has a span without attempts, one without a key or above its limits has none', async () => {
  const gateway = tracedGateway()
  const wrong: [body: Record<string, unknown>, code: string][] = [
    [{ model: 'model-of-a-client' }, 'not_found'],
    [{ messages: 'no list' }, 'invalid_request'],
  ]
  for (const [body, code] of wrong) {
    await gateway.chat(body)
    const [request] = await traceOf(0)
    expect([request.name, request.status, ...of(request, 'error.type', 'gen_ai.usage.input_tokens')]).toEqual([
      ...['chat unknown', 0, code, undefined],
    ])
  }
  expect((await gateway.chat({}, { headers: { authorization: 'Bearer nobody' } })).status).toBe(401)
  await gateway.chat()
  // The one without a key would have come before it.
  await traceOf(1)
})

test('goal: a client that leaves, before an answer and within a stream, ends its span as aborted and not as an error', async () => {
  const gateway = tracedGateway()
  const held: Behaviour[] = [
    () => {},
    response => {
      openSse(response)
      response.write(sse(delta({ content: 'x' })))
    },
  ]
  for (const behave of held) {
    first.behave = second.behave = behave
    const leaving = new AbortController()
    const before = first.seen.length + second.seen.length
    const answer = gateway.chat({ stream: true }, { signal: leaving.signal })
    await until('it is at an upstream', waitMs, () => first.seen.length + second.seen.length > before)
    if (behave === held[1]) await (await answer).body?.getReader().read()
    leaving.abort()
    await answer.catch(() => {})
    const [request, attempt] = await traceOf(1)
    expect([request.status, ...of(request, 'strongroom.outcome', 'error.type')]).toEqual([0, 'aborted', undefined])
    expect([attempt?.status, ...of(attempt, 'error.type')]).toEqual([0, 'aborted'])
  }
})

test('goal: a receiver that hangs, fails or is gone delays no request', async () => {
  const gateway = tracedGateway()
  receiver.behave = () => {}
  for (let count = 0; count < 20; count += 1) expect((await gateway.chat()).status).toBe(200)
  await until('the receiver was asked', waitMs, () => receiver.bodies.length > 0)
  expect(receiver.bodies.length).toBe(1)
  await receiver.stop()
  for (let count = 0; count < 20; count += 1) expect((await gateway.chat()).status).toBe(200)
})

test('goal: what is not sampled, and a gateway without traces, tells nothing and forwards nothing', async () => {
  const none = tracedGateway({ sampleRatio: 0, forwardParent: true })
  const off = undo.use(startHostGateway([target(first.url)]))
  const follows = tracedGateway({ sampleRatio: 0, followParent: true })
  for (const gateway of [none, off, follows]) await gateway.chat({}, { headers: parent })
  await follows.chat({}, { headers: { traceparent: parent.traceparent.replace(/00$/, '01') } })
  await traceOf(1)
  expect([...first.seen, ...second.seen].map(seen => seen.headers.get('traceparent'))).toEqual([null, null, null, null])
})

// Goal: the canary. Nothing that clients and upstreams can write anywhere reaches the receiver.
test('goal: no text of requests, answers, failures, keys or tools is in what the receiver gets', async () => {
  const gateway = tracedGateway({ followParent: true })
  const canary = 'canary-5b7720'
  const quoting: Behaviour[] = [
    wellBehaved,
    (response, seen) => sendJson(response, 400, { error: { message: JSON.stringify(seen.body), code: canary } }),
    response => sendJson(response, 500, { error: { message: canary, type: canary } }),
    response => void response.writeHead(200, { 'content-type': canary, [canary]: canary }).end(canary),
    response => {
      openSse(response)
      response.end(`${sse(delta({ content: canary }, canary))}data: ${canary}\n\n`)
    },
    response => {
      const call = {
        index: 0,
        id: canary,
        type: 'function',
        function: { name: canary, arguments: `{"a":"${canary}"}` },
      }
      const message = { role: canary, content: canary, tool_calls: [call] }
      sendJson(response, 200, { model: canary, choices: [{ index: 0, message, finish_reason: canary }] })
    },
  ]
  const headers = {
    'x-api-key': canary,
    cookie: canary,
    tracestate: `a=${canary}`,
    baggage: `user=${canary}`,
    'user-agent': canary,
    traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-${canary}`,
  }
  const bodies = [
    { messages: [{ role: 'user', content: canary, name: canary }], user: canary, metadata: { id: canary } },
    { tools: [{ type: 'function', function: { name: canary, description: canary } }], tool_choice: 'required' },
    { model: canary },
    { messages: canary },
    {
      stop: [canary],
      response_format: {
        type: 'json_schema',
        json_schema: { name: canary, strict: true, schema: { pattern: `${canary}(` } },
      },
    },
  ]
  let count = 0
  for (const behave of quoting) {
    first.behave = second.behave = behave
    for (const body of bodies) {
      for (const stream of [false, true]) {
        await (await gateway.chat({ ...body, stream }, { headers })).text()
        count += 1
      }
    }
  }
  await (await gateway.post('/v1/chat/completions', `{"model":"${canary}`, { headers })).text()
  await (await gateway.post(`/v1/completions?${canary}`, { model: MODEL, prompt: canary }, { headers })).text()
  const requests = () => receiver.spans.filter(span => span.kind === 2)
  await until('all are told', waitMs, () => requests().length === count + 2)
  expect(receiver.problems).toEqual([])
  expect(requests().some(span => span.name.startsWith('text_completion'))).toBe(true)
  const told = receiver.bodies.join('\n')
  expect(told).toContain('strongroom.request.id')
  for (const text of [
    canary,
    Buffer.from(canary).toString('hex'),
    Buffer.from(canary).toString('base64').slice(0, 12),
  ]) {
    expect(told).not.toContain(text)
  }
  const [, prefix = '', secret = ''] = KEY.split('_')
  expect([told.includes(prefix), told.includes(secret), told.includes('o1"')]).toEqual([false, false, false])
}, 30_000)
