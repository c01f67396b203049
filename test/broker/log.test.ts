// Goal: the log keeps the newest destinations, each once with a count; a flood of refused ones hides no allowed one.

import { expect, test } from 'bun:test'
import { createEgressRing } from '../../src/broker/log.ts'

test('goal: a repeated destination is one row with its last time', () => {
  let now = 1
  const ring = createEgressRing(() => now++)
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  ring.add({ verdict: 'refused', host: 'github.com', port: 443, reason: 'because' })
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  expect(ring.rows()).toEqual([
    { atMs: 2, verdict: 'refused', host: 'github.com', port: 443, reason: 'because', count: 1 },
    { atMs: 3, verdict: 'allowed', host: 'github.com', port: 443, reason: null, count: 2 },
  ])
})

test('goal: a flood is bounded and removes rows of its own verdict alone', () => {
  const ring = createEgressRing(() => 0)
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  for (let at = 0; at < 2_000; at += 1) ring.add({ verdict: 'refused', host: `${at}.example`, port: 0, reason: 'x' })
  const rows = ring.rows()
  expect([rows.length, rows[0]?.host, rows.at(-1)?.host]).toEqual([501, 'github.com', '1999.example'])
})

test('goal: a long reason or host, which a peer may choose, is cut to what the client of the owner reads', () => {
  const ring = createEgressRing(() => 0)
  ring.add({ verdict: 'refused', host: `${'h'.repeat(300)}.example`, port: 443, reason: 'r'.repeat(2_592) })
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  const sizes = ring.rows().map(({ host, reason }) => [host.length, reason?.length ?? null])
  expect(sizes.toSorted()).toEqual([
    [10, null],
    [253, 400],
  ])
})
