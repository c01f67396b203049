// Goal: the output is OTLP/JSON by the specification, with names of the GenAI conventions and configured names only.

import { expect, test } from 'bun:test'
import { finishReasonsMax } from '../../../src/contract/vm/finish-reasons.ts'
import type { TraceSpan } from '../../../src/contract/vm/span.ts'
import { encodeSpans } from '../../../src/inference/traces/otlp.codec.ts'
import { readExport } from '../../rigs/gateway/otlp-receiver.ts'
import { attemptSpan, requestSpan, startUs, traceNames } from '../../rigs/gateway/trace-spans.ts'

const sent = (...spans: TraceSpan[]) => readExport(Buffer.from(encodeSpans(spans, traceNames)).toString())

test('goal: a request is a SERVER span with usage, its attempt a CLIENT span below it with its server', () => {
  const [request, attempt] = sent(requestSpan(), attemptSpan())
  expect(request).toEqual({
    traceId: '0af7651916cd43dd8448eb211c80319c',
    spanId: 'b7ad6b7169203331',
    parentSpanId: 'c7ad6b7169203331',
    name: 'chat m',
    kind: 2,
    status: 0,
    startNs: BigInt(startUs) * 1_000n,
    endNs: BigInt(startUs + 1_500_000) * 1_000n,
    attributes: {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'strongroom',
      'gen_ai.request.model': 'm',
      'gen_ai.request.stream': true,
      'gen_ai.response.model': 'm',
      'gen_ai.response.finish_reasons': ['stop'],
      'gen_ai.response.time_to_first_chunk': 0.0205,
      'gen_ai.usage.input_tokens': 11,
      'gen_ai.usage.output_tokens': 3,
      'http.response.status_code': 200,
      'strongroom.outcome': 'completed',
      'strongroom.queue.duration_us': 250,
      'strongroom.request.id': '0190b1a0-0000-7000-8000-000000000000',
      'strongroom.upstream': 'far',
      'strongroom.usage.source': 'reported',
    },
  })
  expect(attempt).toMatchObject({ name: 'chat m', kind: 3, status: 0, parentSpanId: request?.spanId ?? '' })
  expect(attempt?.attributes).toEqual({
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'vllm',
    'gen_ai.request.model': 'm',
    'server.address': 'far.example',
    'server.port': 8443,
    'strongroom.upstream': 'far',
  })
})

test('goal: a failure of ours or of an upstream is an error, a mistake of the client and its leaving are none', () => {
  const failed = { outcome: 'failed', error: 'upstream_failed' } as const
  const statuses = sent(
    requestSpan({ ...failed, status: 502 }),
    requestSpan({ ...failed, status: 200 }),
    requestSpan({ status: 400, outcome: 'failed', error: 'invalid_request', upstream: null, parentId: null }),
    requestSpan({ status: 499, outcome: 'aborted' }),
    attemptSpan({ error: 'unreachable' }),
    attemptSpan({ error: 'aborted' }),
  ).map(({ status, parentSpanId, attributes }) => [status, attributes['error.type'] ?? null, parentSpanId !== null])
  expect(statuses).toEqual([
    [2, 'upstream_failed', true],
    [2, 'upstream_failed', true],
    [0, 'invalid_request', false],
    [0, null, true],
    [2, 'unreachable', true],
    [0, 'aborted', true],
  ])
})

test('goal: a request that no upstream was asked for has no tokens and no upstream', () => {
  const [span] = sent(requestSpan({ upstream: null, stream: null, finishReasons: [], firstChunkUs: null, status: 404 }))
  const names = Object.keys(span?.attributes ?? {})
  expect(names.filter(name => /usage|upstream|stream|finish|first_chunk/.test(name))).toEqual([])
})

test('goal: names that a hostile VM makes up, and codes that are none of ours, do not go out', () => {
  const told = 'the-prompt-was'
  const code = 'the_prompt_was'
  const text = Buffer.from(
    encodeSpans(
      [
        requestSpan({ model: told, upstream: told, error: code }),
        attemptSpan({ model: told, upstream: told, error: code }),
        attemptSpan({ upstream: '__proto__', model: 'constructor' }),
      ],
      traceNames,
    ),
  ).toString()
  expect(text).not.toMatch(/prompt.was|__proto__|constructor/)
  expect(readExport(text).map(({ name, attributes }) => [name, attributes['strongroom.upstream']])).toEqual(
    Array.from({ length: 3 }, () => ['chat other', 'other']),
  )
  expect(readExport(text)[0]?.attributes['error.type']).toBe('_OTHER')
})

test('goal: the largest numbers that the wire lets through make a valid export still', () => {
  const most = 4_000_000_000_000_000
  const [span] = sent(
    requestSpan({
      startUs: most,
      durationUs: most,
      queueUs: most,
      firstChunkUs: most,
      inputTokens: Number.MAX_SAFE_INTEGER,
      finishReasons: Array.from({ length: finishReasonsMax }, () => 'tool_calls' as const),
    }),
  )
  expect(span?.endNs).toBe(8_000_000_000_000_000_000n)
  expect(span?.attributes['gen_ai.response.finish_reasons']).toHaveLength(finishReasonsMax)
})
