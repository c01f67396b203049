// Goal: the table of `prove-host.ts` has a row for each number and each Debian, says ok only where something was tried
// and nothing failed, and its exit status is that of the worst row.

import { expect, test } from 'bun:test'
import { PARTS } from '../../../scripts/prove/parts.ts'
import { exitStatusOf, type Outcome, ROW_NAMES, tableLines } from '../../../scripts/prove/rows.ts'

const numbers = ['1', '2', '3', '4', '5', '6', '6a', '7', '8', '9', '10']
const outcome = (row: Outcome['row'], part: string, result: Outcome['result'], release = 12): Outcome => ({
  ...{ row, part, result, release, tookMs: 1_500 },
})
const rowsOf = (lines: readonly string[]) =>
  lines.filter(line => /^\d/.test(line)).map(line => line.trim().split(/ {2,}/))

test('goal: every number has a part that proves it', () => {
  const proved = new Set<string>(PARTS.map(({ row }) => row))
  expect(numbers.filter(number => !proved.has(number))).toEqual([])
  expect(ROW_NAMES as string[]).toEqual(numbers)
})

test('goal: one row for each number and Debian, in order, with its time', () => {
  const outcomes = [13, 12].flatMap(release => PARTS.map(({ row, name }) => outcome(row, name, 'ok', release)))
  const rows = rowsOf(tableLines(outcomes, [12, 13]))
  expect(rows.map(([number, release]) => [number, release])).toEqual(
    numbers.flatMap(number => [
      [number, '12'],
      [number, '13'],
    ]),
  )
  expect(rows.every(([, , result]) => result === 'ok')).toBe(true)
  const partsOf4 = PARTS.filter(({ row }) => row === '4').length
  expect(rows.find(([number]) => number === '4')?.[3]).toBe(`${(1.5 * partsOf4).toFixed(1)} s`)
})

test('goal: a failed part makes its row FAIL, with the reason below, whatever else was ok', () => {
  const outcomes = [
    outcome('9', 'first', 'ok'),
    outcome('9', 'second', { failed: 'three datagrams\n  left' }),
    outcome('9', 'third', { untried: 'no ufw' }),
  ]
  const lines = tableLines(outcomes, [12])
  const at = lines.findIndex(line => line.startsWith('9 '))
  expect(lines[at]).toMatch(/^9 +12 +FAIL +4\.5 s +/)
  expect(lines.slice(at + 1, at + 3).map(line => line.trim())).toEqual([
    'FAIL: second: three datagrams left',
    'not tried here: third: no ufw',
  ])
  expect(exitStatusOf(outcomes)).toBe(1)
})

test('goal: what was not tried is never ok, and names its reason', () => {
  const lines = tableLines([outcome('6', 'all of it', { untried: 'no IPv6 here' })], [12])
  const verdict = (number: string) => rowsOf(lines).find(([name]) => name === number)?.[2]
  expect([verdict('6'), verdict('10')]).toEqual(['not tried here', 'not tried here'])
  expect(lines.map(line => line.trim())).toContain('not tried here: all of it: no IPv6 here')
  expect(exitStatusOf([outcome('6', 'all of it', { untried: 'no IPv6 here' })])).toBe(0)
})

test('goal: a reason that is a whole screen is cut', () => {
  const [line = ''] = tableLines([outcome('4', 'init', { failed: 'x'.repeat(9_000) })], [12]).filter(text =>
    text.includes('FAIL: '),
  )
  expect(line.length).toBeLessThan(500)
})
