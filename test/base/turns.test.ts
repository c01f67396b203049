// Goal: long work ends with its result either way, and in turns lets other work go on.

import { expect, test } from 'bun:test'
import { atOnce, inTurns, type Turns } from '../../src/base/turns.ts'

function* work(seen: string[]): Turns<string> {
  for (const turn of ['first', 'second']) {
    seen.push(turn)
    yield
  }
  return 'done'
}

test('goal: at once nothing comes in between; in turns something does', async () => {
  const seen: string[] = []
  expect(atOnce(work(seen))).toBe('done')
  expect(seen).toEqual(['first', 'second'])
  const shared: string[] = []
  setImmediate(() => shared.push('other'))
  expect(await inTurns(work(shared))).toBe('done')
  expect(shared).toEqual(['first', 'other', 'second'])
})

test('goal: what fails in the middle fails the whole', async () => {
  function* failing(): Turns<void> {
    yield
    throw new Error('in the second turn')
  }
  await expect(inTurns(failing())).rejects.toThrow('in the second turn')
  expect(() => atOnce(failing())).toThrow('in the second turn')
})
