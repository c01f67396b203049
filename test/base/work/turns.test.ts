// Goal: long work ends with its result either way, and in turns lets other work go on.

import { expect, test } from 'bun:test'
import { createCooperativeQueue, type Turns } from '../../../src/base/work/turns.ts'

function* work(seen: string[]): Turns<string> {
  for (const turn of ['first', 'second']) {
    seen.push(turn)
    yield
  }
  return 'done'
}

test('goal: in turns something comes in between', async () => {
  const shared: string[] = []
  setImmediate(() => shared.push('other'))
  expect(await createCooperativeQueue()(work(shared))).toBe('done')
  expect(shared).toEqual(['first', 'other', 'second'])
})

test('goal: what fails in the middle fails the whole', async () => {
  function* failing(): Turns<void> {
    yield
    throw new Error('in the second turn')
  }
  await expect(createCooperativeQueue()(failing())).rejects.toThrow('in the second turn')
})

test('goal: however many works share turns, one of them has a turn before everything else has one, and none is passed over', async () => {
  const shared = createCooperativeQueue()
  const seen: string[] = []
  function* long(name: string): Turns<string> {
    for (let turn = 0; turn < 3; turn += 1) {
      seen.push(name)
      yield
    }
    return name
  }
  let isOver = false
  const other = () => {
    seen.push('-')
    if (!isOver) setImmediate(other)
  }
  setImmediate(other)
  const results = await Promise.all(['a', 'b', 'c'].map(name => shared(long(name))))
  isOver = true
  expect(results).toEqual(['a', 'b', 'c'])
  // The first turn of each is its own call's.
  expect(
    seen
      .join('')
      .replaceAll(/-+/g, '-')
      .replace(/^abc-?/, '')
      .replace(/-$/, ''),
  ).toBe('a-b-c-a-b-c')
})

test('goal: a work that fails leaves the turns to the others', async () => {
  const shared = createCooperativeQueue()
  function* failing(): Turns<void> {
    yield
    throw new Error('in the second turn')
  }
  const works = [shared(failing()), shared(work([])), shared(failing())]
  const outcomes = (await Promise.allSettled(works)).map(result => result.status)
  expect(outcomes).toEqual(['rejected', 'fulfilled', 'rejected'])
  expect(await shared(work([]))).toBe('done')
})
