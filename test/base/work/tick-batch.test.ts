// The end of a turn of the event loop, which many wait for.

import { expect, test } from 'bun:test'
import { createTickBatch } from '../../../src/base/work/tick-batch.ts'

const nextTurn = () => new Promise<void>(resolve => setImmediate(resolve))

// Goal: work that comes alone does not wait. Where much came in the turn before, all of a turn goes on after it, in the
// order of its calls and step by step, not one to its end after the other; what comes later waits for its own turn.
test('work of one turn goes on together', async () => {
  const turnEnd = createTickBatch()
  const seen: string[] = []
  const work = async (name: string) => {
    await turnEnd()
    seen.push(`${name} begins`)
    await null
    seen.push(`${name} ends`)
  }
  for (let alone = 0; alone < 5; alone += 1) {
    expect(turnEnd()).toBeNull()
    await nextTurn()
  }
  for (let together = 0; together < 4; together += 1) expect(turnEnd()).toBeNull()
  await nextTurn()
  const many = ['a', 'b', 'c', 'd'].map(work)
  queueMicrotask(() => seen.push('the rest of the turn'))
  await Promise.all(many)
  const begun = ['a begins', 'b begins', 'c begins', 'd begins']
  expect(seen).toEqual(['the rest of the turn', ...begun, 'a ends', 'b ends', 'c ends', 'd ends'])
  const later = work('e')
  await null
  expect(seen).toHaveLength(9)
  await later
  expect(seen.slice(9)).toEqual(['e begins', 'e ends'])
  await nextTurn()
  expect(turnEnd()).toBeNull()
})
