// Goal: unfetched spans take bounded memory, a response fits into a line of the channel, and numbers reveal dropped
// spans.

import { expect, test } from 'bun:test'
import { agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { spansPieceMax } from '../../src/contract/vm/enclave.ts'
import { finishReasonsMax } from '../../src/contract/vm/finish-reasons.ts'
import { SpanSpool } from '../../src/enclave/span-spool.ts'
import { encodeResponse } from '../../src/guest/wire.codec.ts'
import { requestSpan } from '../rigs/gateway/trace-spans.ts'

function spoolOf(count: number, from = 0): SpanSpool {
  const spool = new SpanSpool()
  for (let at = from; at < from + count; at += 1) spool.add(requestSpan({ inputTokens: at }))
  return spool
}

const numbersOf = (piece: ReturnType<SpanSpool['from']>) =>
  piece.spans.map(span => (span.kind === 'request' ? span.inputTokens : null))

test('goal: each is told once to a host that asks on, and again to one that asks anew', () => {
  const spool = spoolOf(100)
  const first = spool.from(0)
  expect([first.first, numbersOf(first)]).toEqual([0, Array.from({ length: spansPieceMax }, (_, at) => at)])
  expect(spool.from(0)).toEqual(first)
  const second = spool.from(spansPieceMax)
  expect([second.first, second.spans.length]).toEqual([spansPieceMax, 100 - spansPieceMax])
  // An answer that was not acknowledged.
  expect(spool.from(0)).toEqual(second)
  expect(spool.from(100)).toEqual({ first: 100, spans: [] })
  expect(spool.from(Number.MAX_SAFE_INTEGER)).toEqual({ first: 100, spans: [] })
})

test('goal: of more than there is room for the oldest are gone', () => {
  const piece = spoolOf(5_000).from(3)
  expect([piece.first, numbersOf(piece)[0]]).toEqual([5_000 - 4_096, 5_000 - 4_096])
})

test('goal: an answer of the longest spans is within a line of the channel, and all are told in the end', () => {
  const spool = new SpanSpool()
  const longest = requestSpan({
    model: '\u0001'.repeat(256),
    upstream: '漢'.repeat(64),
    finishReasons: Array.from({ length: finishReasonsMax }, () => 'content_filter' as const),
  })
  for (let at = 0; at < 200; at += 1) spool.add(longest)
  let told = 0
  for (let piece = spool.from(0); piece.spans.length > 0; piece = spool.from(piece.first + piece.spans.length)) {
    const response = { id: 'x'.repeat(64), ok: true, traced: { ...piece, first: Number.MAX_SAFE_INTEGER } }
    const line = encodeResponse(response as unknown as Parameters<typeof encodeResponse>[0])
    expect(line.length).toBeLessThanOrEqual(agentLineBytesMax)
    told += piece.spans.length
  }
  expect(told).toBe(200)
})
