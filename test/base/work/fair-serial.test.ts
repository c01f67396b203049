// Goal: work runs one piece at a time, owners in turn, and each piece fails for its own caller alone.

import { expect, test } from 'bun:test'
import { FairSerial } from '../../../src/base/work/fair-serial.ts'

test('goal: owners take turns, however much one of them has, and each has its own work in order', async () => {
  const serial = new FairSerial()
  const done: string[] = []
  let running = 0
  const work = (name: string) => async () => {
    running += 1
    expect(running).toBe(1)
    await Bun.sleep(0)
    running -= 1
    done.push(name)
    return name
  }
  const much = ['a1', 'a2', 'a3', 'a4', 'a5'].map(name => serial.run('a', work(name)))
  const little = ['b1', 'b2'].map(name => serial.run('b', work(name)))
  expect([serial.size('a'), serial.size('b'), serial.size('c')]).toEqual([5, 2, 0])
  expect(await Promise.all([...much, ...little])).toEqual(['a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'b2'])
  expect(done).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'a4', 'a5'])
  expect([serial.size('a'), serial.size('b')]).toEqual([0, 0])
})

test('goal: work that fails is its own caller’s alone', async () => {
  const serial = new FairSerial()
  const failed = serial.run('a', () => Promise.reject(new Error('broken')))
  const next = serial.run('a', async () => 'done')
  await expect(failed).rejects.toThrow('broken')
  expect(await next).toBe('done')
  expect(serial.size('a')).toBe(0)
})
