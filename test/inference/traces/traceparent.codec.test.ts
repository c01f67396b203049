// Goal: a `traceparent` counts when W3C Trace Context says so, and nothing else that a client sends in its place does.

import { expect, test } from 'bun:test'
import { parseTraceparent, traceparentOf } from '../../../src/inference/traces/traceparent.codec.ts'

const [traceId, spanId] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331']
const good = `00-${traceId}-${spanId}-01`

test('goal: the ids and the sampled flag are read, of later versions as well', () => {
  expect(parseTraceparent(good)).toEqual({ traceId, spanId, isSampled: true })
  expect(parseTraceparent(`00-${traceId}-${spanId}-00`)).toEqual({ traceId, spanId, isSampled: false })
  // Other flags are not ours to read.
  expect(parseTraceparent(`00-${traceId}-${spanId}-fe`)?.isSampled).toBe(false)
  expect(parseTraceparent(`00-${traceId}-${spanId}-ff`)?.isSampled).toBe(true)
  expect(parseTraceparent(`cc-${traceId}-${spanId}-01-what-comes-later`)).toEqual({ traceId, spanId, isSampled: true })
  expect(parseTraceparent(traceparentOf(traceId, spanId))).toEqual({ traceId, spanId, isSampled: true })
})

test('goal: whatever else it is, there is no parent', () => {
  const bad = [
    ...[null, '', 'x', good.slice(1), good.slice(0, -1), ` ${good}`, `${good} `, `${good}\n`, `${good}, ${good}`],
    ...[good.toUpperCase(), `${good}-more`, `${good}0`, good.replaceAll('-', '_')],
    ...[`ff-${traceId}-${spanId}-01`, `0g-${traceId}-${spanId}-01`, `00-${'0'.repeat(32)}-${spanId}-01`],
    ...[`00-${traceId}-${'0'.repeat(16)}-01`, `00-${traceId}a-${spanId}-01`, `00-${traceId}-${spanId}a-01`],
    ...[`cc-${traceId}-${spanId}-01x`, `cc-${traceId}-${spanId}-01-${'x'.repeat(201)}`, `cc-${traceId}-${spanId}-01-ä`],
    'a'.repeat(1_000_000),
  ]
  expect(bad.map(parseTraceparent).filter(found => found !== null)).toEqual([])
})
