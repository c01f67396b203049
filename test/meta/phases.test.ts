import { expect, test } from 'bun:test'
import { phaseFaults } from './phases.ts'
import { readTree } from './tree.ts'

// Goal: what holds a clock to close bounds has the processors to itself.
test('who measures time is alone', () => expect(phaseFaults(readTree('test/**/*.test.ts'))).toEqual([]))

// Goal: the rule sees the forms that bounds have.
test.each([
  ['expect(performance.now() - startedMs).toBeLessThan(100)', 1],
  ['expect((upstream.lastGoneMs() ?? Number.POSITIVE_INFINITY) - leftMs).toBeLessThan(100)', 1],
  ['expect(busy.p99Ms).toBeLessThan(Math.max(50, 2 * idle.p99Ms))', 1],
  ['expect([name, closedMs - leftMs < 100]).toEqual([name, true])', 1],
  ['expect(seen.p99Ms).toBeLessThan(1_500)', 0],
  ['expect(bytes.length).toBeLessThan(100)', 0],
])('%s', (line, count) => {
  expect(phaseFaults(new Map([['test/a.slow.test.ts', line]]))).toHaveLength(count)
  expect(phaseFaults(new Map([['test/a.alone.test.ts', line]]))).toEqual([])
})
