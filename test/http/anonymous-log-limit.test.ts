// Goal: requests without a key write 120 lines a minute to the log, all others are counted, and the log says how many.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { type Logger, silentLogger } from '../../src/base/log.ts'
import { AnonymousLogLimit } from '../../src/http/anonymous-log-limit.ts'

function open() {
  const clock = createManualClock()
  const said: unknown[] = []
  const log: Logger = { ...silentLogger, info: (_: string, data?: object) => void said.push(data) }
  const lines = new AnonymousLogLimit({ clock, log })
  const levels = (count: number) => Array.from({ length: count }, () => lines.level('info'))
  return { clock, lines, said, levels, [Symbol.dispose]: () => lines[Symbol.dispose]() }
}

test('goal: the 121st line of a minute is one for debugging, and once a minute is over there are 120 more', () => {
  using rig = open()
  const { clock, lines, levels } = rig
  expect(new Set(levels(120))).toEqual(new Set(['info']))
  expect([lines.level('info'), lines.level('warn'), lines.level('error')]).toEqual(['debug', 'debug', 'debug'])
  clock.advance(60_000)
  expect(lines.level('info')).toBe('debug')
  clock.advance(1_000)
  expect(levels(121).filter(level => level === 'info')).toHaveLength(120)
})

test('goal: a line for debugging is no line of the log: it takes no place and is not counted', () => {
  using rig = open()
  const { lines, levels } = rig
  for (let count = 0; count < 500; count += 1) expect(lines.level('debug')).toBe('debug')
  expect(new Set(levels(120))).toEqual(new Set(['info']))
  levels(3)
  const samples = lines.render().split('\n')
  expect(samples.filter(line => line.startsWith('strongroom_requests_without_key_total'))).toEqual([
    'strongroom_requests_without_key_total{logged="yes"} 120',
    'strongroom_requests_without_key_total{logged="no"} 3',
  ])
})

test('goal: each minute the log says how many were left out since the last time, and nothing if none were', async () => {
  using rig = open()
  const { clock, said, levels } = rig
  levels(125)
  await clock.elapse(60_000)
  expect(said).toEqual([{ left_out: 5 }])
  await clock.elapse(60_000)
  levels(122)
  await clock.elapse(60_000)
  expect(said).toEqual([{ left_out: 5 }, { left_out: 2 }])
})
