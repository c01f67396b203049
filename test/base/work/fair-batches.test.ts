// Goal: work runs one batch at a time, owners in turn within each, and a failure is its batch's alone.

import { expect, test } from 'bun:test'
import { FairBatches } from '../../../src/base/work/fair-batches.ts'

test('goal: owners take turns, however much one of them has, and each item has its own result', async () => {
  const batches: string[][] = []
  let running = 0
  const fair = new FairBatches(async (items: readonly string[]) => {
    running += 1
    expect(running).toBe(1)
    batches.push([...items])
    await Bun.sleep(0)
    running -= 1
    return items.map(item => `${item}!`)
  }, 3)
  const much = ['a1', 'a2', 'a3', 'a4', 'a5'].map(item => fair.run('a', item))
  const little = ['b1', 'b2'].map(item => fair.run('b', item))
  expect([fair.size('a'), fair.size('b'), fair.size('c')]).toEqual([5, 2, 0])
  expect(await Promise.all([...much, ...little])).toEqual(['a1!', 'a2!', 'a3!', 'a4!', 'a5!', 'b1!', 'b2!'])
  expect(batches).toEqual([['a1'], ['b1', 'a2', 'b2'], ['a3', 'a4', 'a5']])
  expect([fair.size('a'), fair.size('b')]).toEqual([0, 0])
})

test('goal: the next batch begins before anybody acts on the results of the last', async () => {
  const seen: string[] = []
  const fair = new FairBatches(async (items: readonly string[]) => {
    seen.push(`work ${items.join('')}`)
    await Bun.sleep(0)
    return items
  }, 2)
  const results = ['a', 'b', 'c', 'd'].map(item => fair.run('one', item).then(() => seen.push(`got ${item}`)))
  await Promise.all(results)
  expect(seen).toEqual(['work a', 'work bc', 'got a', 'work d', 'got b', 'got c', 'got d'])
})

test('goal: a batch that fails, or has too few results, fails for its own callers alone', async () => {
  const fair = new FairBatches(async (items: readonly string[]) => {
    if (items.includes('bad')) throw new Error('broken')
    return items.slice(0, 1)
  }, 2)
  const settled = async (items: string[]) => {
    const all = await Promise.allSettled(items.map(item => fair.run('one', item)))
    return all.map(end => (end.status === 'fulfilled' ? end.value : String(end.reason)))
  }
  const broken = 'Error: broken'
  expect(await settled(['first', 'bad', 'beside', 'last'])).toEqual(['first', broken, broken, 'last'])
  const few = 'Error: invariant broken: each item has a result'
  expect(await settled(['only', 'one', 'two', 'last'])).toEqual(['only', few, few, 'last'])
  expect(fair.size('one')).toBe(0)
})
