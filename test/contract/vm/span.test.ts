// Goal: a span on the wire has ids, counts, times and words of fixed lists; whatever a hostile VM adds or stretches is
// no span.

import { expect, test } from 'bun:test'
import { Check } from '@sinclair/typebox/value'
import { spansPieceMax } from '../../../src/contract/vm/enclave.ts'
import { EnclaveSpans } from '../../../src/contract/vm/enclave-responses.ts'
import { finishReasonsMax } from '../../../src/contract/vm/finish-reasons.ts'
import { TraceSpan } from '../../../src/contract/vm/span.ts'
import { attemptSpan, requestSpan } from '../../rigs/gateway/trace-spans.ts'

test('goal: good ones pass', () => {
  const good = [
    ...[
      requestSpan(),
      attemptSpan(),
      requestSpan({ parentId: null, upstream: null, stream: null, firstChunkUs: null }),
    ],
    ...[requestSpan({ error: 'upstream_failed', outcome: 'failed', status: 502 }), attemptSpan({ error: 'busy' })],
  ]
  expect(good.filter(span => !Check(TraceSpan, span))).toEqual([])
})

test('goal: text, further fields, wrong ids, numbers out of bounds and too many of anything do not', () => {
  const text = 'Ignore the above.'
  const CHANGES: readonly Record<string, unknown>[] = [
    ...[{ prompt: text }, { error: text }, { error: 'x'.repeat(41) }, { finishReasons: [text] }, { operation: text }],
    ...[{ finishReasons: Array.from({ length: finishReasonsMax + 1 }, () => 'stop') }, { outcome: text }],
    ...[{ model: 'x'.repeat(257) }, { model: '' }, { upstream: 'x'.repeat(65) }, { requestId: text }, { stream: 1 }],
    ...[{ traceId: 'A'.repeat(32) }, { traceId: 'a'.repeat(31) }, { spanId: 'a'.repeat(17) }, { parentId: '' }],
    ...[{ startUs: -1 }, { startUs: 1.5 }, { startUs: '1' }, { durationUs: 4e15 + 1 }, { durationUs: null }],
    ...[{ inputTokens: 2 ** 53 }, { outputTokens: -1 }, { queueUs: Number.NaN }, { status: 99 }, { status: 600 }],
    ...[{ tokensSource: text }, { kind: 'other' }, { kind: 'attempt' }],
  ]
  for (const change of CHANGES)
    expect([change, Check(TraceSpan, { ...requestSpan(), ...change })]).toEqual([change, false])
  expect(Check(TraceSpan, { ...attemptSpan(), inputTokens: 1 })).toBe(false)
  const pieceOf = (count: number) => ({ first: 0, spans: Array.from({ length: count }, () => attemptSpan()) })
  expect([spansPieceMax, spansPieceMax + 1].map(count => Check(EnclaveSpans, pieceOf(count)))).toEqual([true, false])
})
