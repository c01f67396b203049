// Lines about refused requests on standard error.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createProblemLog } from '../../../src/client/connect/problem-log.ts'

function start() {
  const clock = createManualClock()
  const lines: string[] = []
  return { clock, lines, log: createProblemLog({ write: line => void lines.push(line), clock }) }
}

// Goal: one line, whatever is in the path or the reason, and no field but these two.
test('a line', () => {
  const { lines, log } = start()
  log('request refused', { path: '/v1/a\n\u001b[2J', reason: 'no\u202e\nreason', key: 'gw_secret' })
  expect(lines).toEqual([
    expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z request refused \/v1\/a \\x1b\[2J: no\\u202e reason\n$/),
  ])
})

// Goal: a stranger cannot fill a disk: a minute has 60 lines, of which the last one says so. The next minute has its
// own.
test('a flood', () => {
  const { clock, lines, log } = start()
  for (let at = 0; at < 1_000; at += 1) log('request refused', { reason: `${at}` })
  expect([lines.length, lines.at(-1)]).toEqual([
    60,
    expect.stringContaining('59; further lines of this minute are left'),
  ])
  expect(lines[58]).not.toContain('left out')
  clock.advance(59_999)
  log('request refused', { reason: 'too early' })
  expect(lines).toHaveLength(60)
  clock.advance(1)
  log('request refused', { reason: 'next' })
  expect([lines.length, lines.at(-1)]).toEqual([61, expect.stringContaining('refused: next\n')])
})
