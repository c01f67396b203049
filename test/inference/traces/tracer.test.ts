// Goal: our own ratio decides the sampling unless the parent is to be followed; spans are whole, passed on once, and
// hold no text.

import { expect, test } from 'bun:test'
import { Check } from '@sinclair/typebox/value'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { TraceSpan } from '../../../src/contract/vm/span.ts'
import type { TraceSettings } from '../../../src/contract/vm/workload.ts'
import { createTracer, type TraceEnd } from '../../../src/inference/traces/tracer.ts'

const id = '0190b1a0-0000-7000-8000-000000000000'
const [traceId, parentId] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
const END: TraceEnd = {
  model: 'm',
  upstream: 'u',
  status: 200,
  outcome: 'completed',
  errorCode: null,
  queueMs: 1.5,
  firstChunkMs: 20,
  tokens: { prompt: 11, completion: 3 },
  tokensSource: 'reported',
}

function tracerWith(changes: Partial<TraceSettings> = {}, random = systemRandom) {
  const spans: TraceSpan[] = []
  const clock = createManualClock()
  const settings = { sampleRatio: 1, followParent: false, forwardParent: false, ...changes }
  const begin = createTracer({ settings, offer: span => void spans.push(span), clock, random })
  return {
    spans,
    clock,
    begin: (traceparent?: string) =>
      begin({ headers: new Headers(traceparent === undefined ? {} : { traceparent }), id, operation: 'chat' }),
  }
}

test('goal: the ratio is the share that is traced, and a client cannot choose to be among them', () => {
  let drawn = 0
  // Every number once, evenly.
  const even = (lengthBytes: number) => {
    const bytes = new Uint8Array(lengthBytes).fill(7)
    if (lengthBytes === 4) new DataView(bytes.buffer).setUint32(0, (drawn++ % 100) * 42_949_673, true)
    return bytes
  }
  for (const [sampleRatio, expected] of [
    [0, 0],
    [0.25, 25],
    [1, 100],
  ] as const) {
    const { begin } = tracerWith({ sampleRatio }, even)
    const sampled = Array.from({ length: 100 }, () => begin(`00-${traceId}-${parentId}-01`))
    expect(sampled.filter(trace => trace !== null).length).toBe(expected)
  }
})

test('goal: where the parent is followed its flag decides, and without one the ratio', () => {
  const { begin } = tracerWith({ sampleRatio: 0, followParent: true })
  expect(begin(`00-${traceId}-${parentId}-01`)).not.toBeNull()
  expect(begin(`00-${traceId}-${parentId}-00`)).toBeNull()
  expect([begin(), begin('00-garbage')]).toEqual([null, null])
  const always = tracerWith({ sampleRatio: 1, followParent: true })
  expect(always.begin(`00-${traceId}-${parentId}-00`)).toBeNull()
  expect(always.begin()).not.toBeNull()
})

test('goal: a request and its attempts are one trace below the client, with times and counts', () => {
  const { spans, begin, clock } = tracerWith()
  const trace = begin(`00-${traceId}-${parentId}-00`)
  if (trace === null) throw new Error('it is traced')
  clock.advance(5)
  expect(trace.beginAttempt('first')).toBeNull()
  clock.advance(10)
  trace.endAttempt('unreachable')
  trace.beginAttempt('u')
  clock.advance(20)
  trace.isStream = true
  trace.finishReasons = ['stop', 'text of a model', 'length']
  trace.end(END)
  trace.end({ ...END, status: 502 })
  trace.endAttempt('late')
  const [first, second, request] = spans
  expect(spans.length).toBe(3)
  expect(spans.filter(span => !Check(TraceSpan, span))).toEqual([])
  expect(request).toMatchObject({
    kind: 'request',
    traceId,
    parentId,
    requestId: id,
    durationUs: 35_000,
    queueUs: 1_500,
    firstChunkUs: 20_000,
    stream: true,
    finishReasons: ['stop', 'length'],
    inputTokens: 11,
    outputTokens: 3,
    error: null,
  })
  const startUs = request?.startUs ?? 0
  expect(first).toMatchObject({ upstream: 'first', error: 'unreachable', startUs: startUs + 5_000, durationUs: 10_000 })
  expect(second).toMatchObject({
    upstream: 'u',
    error: null,
    startUs: startUs + 15_000,
    durationUs: 20_000,
    model: 'm',
  })
  expect([first, second].map(span => [span?.traceId, span?.parentId])).toEqual(
    Array.from({ length: 2 }, () => [traceId, request?.spanId]),
  )
  expect(new Set(spans.map(span => span.spanId)).size).toBe(3)
})

test('goal: a trace that begins here has ids that are never zero, also where chance would have it', () => {
  const { spans, begin } = tracerWith({}, lengthBytes => new Uint8Array(lengthBytes))
  begin()?.end({ ...END, upstream: null, tokens: { prompt: Number.NaN, completion: -1 }, firstChunkMs: null })
  expect(spans.every(span => Check(TraceSpan, span))).toBe(true)
  expect(spans[0]).toMatchObject({ parentId: null, inputTokens: 0, outputTokens: 0, stream: null })
  expect([spans[0]?.traceId, spans[0]?.spanId].every(text => /[1-9a-f]/.test(text ?? ''))).toBe(true)
})

test('goal: an upstream is sent the span of its own attempt where that is configured', () => {
  const { spans, begin } = tracerWith({ forwardParent: true })
  const trace = begin(`00-${traceId}-${parentId}-00`)
  const header = trace?.beginAttempt('u')
  trace?.end({ ...END, outcome: 'aborted', status: 499 })
  expect(header).toBe(`00-${traceId}-${spans[0]?.spanId}-01`)
  expect(spans.map(span => span.error)).toEqual(['aborted', null])
})
