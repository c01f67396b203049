// Goal: waiters are served by organization, then by key, then in order of arrival; the newest one of the key that has
// most gives way.

import { expect, test } from 'bun:test'
import type { Owner } from '../../../src/inference/upstream/fair-share.ts'
import { Waiters } from '../../../src/inference/upstream/waiters.ts'

type Waiter = { readonly name: string; readonly owner: Owner }

/** `a/k/1`: organization, key and a number. */
function waiter(name: string): Waiter {
  const [organizationId = '', keyPrefix = ''] = name.split('/')
  return { name, owner: { organizationId, keyPrefix } }
}

function open(...names: string[]) {
  const waiters = new Waiters<Waiter>()
  const all = new Map(names.map(name => [name, waiter(name)]))
  for (const added of all.values()) waiters.add(added)
  const remove = (name: string) => waiters.delete(all.get(name) ?? waiter(name))
  const shown = () => [...waiters].map(({ name }) => name)
  const givesWay = (name: string) => waiters.givesWay(waiter(name).owner)?.name ?? null
  return { waiters, remove, shown, givesWay }
}

/** Places whose order is that of these names, first to last. */
const inOrder = (...names: string[]) => ({
  compare: (a: Owner, b: Owner) =>
    names.indexOf(`${a.organizationId}/${a.keyPrefix}`) - names.indexOf(`${b.organizationId}/${b.keyPrefix}`),
})
const anyOf = () => true

test('goal: next is the first of the key that is due, among those that may take a place', () => {
  const { waiters } = open('a/k/1', 'a/k/2', 'a/l/1', 'b/k/1')
  const next = (order: ReturnType<typeof inOrder>, mayTake: (waiter: Waiter) => boolean = anyOf) =>
    waiters.next(order, mayTake)?.name ?? null
  expect(next(inOrder('a/k', 'a/l', 'b/k'))).toBe('a/k/1')
  expect(next(inOrder('b/k', 'a/k', 'a/l'))).toBe('b/k/1')
  expect(next(inOrder('a/l', 'b/k', 'a/k'))).toBe('a/l/1')
  expect(next(inOrder('a/k', 'a/l', 'b/k'), ({ name }) => name !== 'a/k/1')).toBe('a/k/2')
  expect(next(inOrder('a/k', 'b/k', 'a/l'), ({ owner }) => owner.organizationId === 'b')).toBe('b/k/1')
  expect(next(inOrder('a/k', 'a/l', 'b/k'), () => false)).toBeNull()
  // Equals: the one whose line is older.
  expect(next({ compare: () => 0 })).toBe('a/k/1')
})

test('goal: the count and the order are those of the waiters that are there, each removed once', () => {
  const { waiters, remove, shown } = open('a/k/1', 'b/k/1', 'a/k/2')
  expect([waiters.size, shown()]).toEqual([3, ['a/k/1', 'a/k/2', 'b/k/1']])
  remove('a/k/1')
  remove('a/k/1')
  remove('c/k/1')
  expect([waiters.size, shown()]).toEqual([2, ['a/k/2', 'b/k/1']])
  remove('a/k/2')
  remove('b/k/1')
  expect([waiters.size, shown(), waiters.next(inOrder(), anyOf)]).toEqual([0, [], null])
})

test('goal: the newest of the key that has most gives way, in the organization that has most', () => {
  const { givesWay } = open('a/k/1', 'a/k/2', 'a/l/1', 'b/k/1')
  expect(givesWay('b/k')).toBe('a/k/2')
  expect(givesWay('c/k')).toBe('a/k/2')
  expect(givesWay('a/m')).toBe('a/k/2')
  // With the new request that key has as many as the other one.
  expect(givesWay('a/l')).toBeNull()
})

test('goal: a request gives way itself where its key has most, and where another one has only as much', () => {
  const { givesWay } = open('a/k/1', 'a/k/2', 'b/k/1', 'b/k/2')
  expect(givesWay('a/k')).toBeNull()
  // With the new request its organization has most, and in it the other key has as much as its own.
  expect(open('a/k/1', 'a/l/1', 'a/l/2').givesWay('a/k')).toBeNull()
  expect(open('a/k/1', 'a/l/1', 'a/l/2', 'a/l/3').givesWay('a/k')).toBe('a/l/3')
  expect(open('a/k/1', 'a/k/2').givesWay('b/k')).toBe('a/k/2')
  expect(open('a/k/1').givesWay('b/k')).toBeNull()
  expect(open().givesWay('a/k')).toBeNull()
})

test('goal: who has waited and gone counts no more', () => {
  const { givesWay, remove } = open('a/k/1', 'a/k/2', 'a/k/3', 'b/k/1', 'b/k/2')
  for (const name of ['a/k/1', 'a/k/2']) remove(name)
  expect(givesWay('a/k')).toBeNull()
  remove('a/k/3')
  expect(givesWay('a/k')).toBe('b/k/2')
})

// Goal: ranks and sums are those that a look at each waiter gives, whoever comes and leaves in whatever order.
test('ranks and sums against a plain count', () => {
  let seed = 7
  const random = (below: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((seed / 2_147_483_648) * below)
  }
  const waiters = new Waiters<Waiter>()
  const all: Waiter[] = []
  const countBy = (list: Waiter[], nameOf: (waiter: Waiter) => string) =>
    Object.values(Object.groupBy(list, nameOf)).map(group => group?.length ?? 0)
  for (let step = 0; step < 3_000; step += 1) {
    if (random(10) < (step < 1_500 ? 6 : 4) || all.length === 0) {
      const added = waiter(`o${random(4)}/k${random(3)}/${step}`)
      all.push(added)
      waiters.add(added)
    } else {
      const [left] = all.splice(random(2) === 0 ? 0 : random(all.length), 1)
      if (left !== undefined) waiters.delete(left)
    }
    const { owner } = all[random(all.length)] ?? waiter('o0/k0/0')
    const most = 1 + random(20)
    const inOrganization = all.filter(other => other.owner.organizationId === owner.organizationId)
    const ofKey = inOrganization.filter(other => other.owner.keyPrefix === owner.keyPrefix)
    const otherKeys = inOrganization.filter(other => other.owner.keyPrefix !== owner.keyPrefix)
    const others = all.filter(other => other.owner.organizationId !== owner.organizationId)
    const sumOf = (counts: number[]) => counts.reduce((sum, count) => sum + Math.min(count, most), 0)
    expect([
      ...[waiters.size, waiters.count(owner)],
      ...[waiters.ofOtherKeys(owner, most), waiters.ofOtherOrganizations(owner, most)],
    ]).toEqual([
      ...[all.length, ofKey.length],
      ...[
        sumOf(countBy(otherKeys, other => other.owner.keyPrefix)),
        sumOf(countBy(others, other => other.owner.organizationId)),
      ],
    ])
    expect(ofKey.map(other => waiters.rank(other))).toEqual(ofKey.map((_, at) => at + 1))
  }
  expect(waiters.rank(waiter('o0/k0/new'))).toBeNull()
})

// Goal: in a long line that many leave, a rank is never too low, and at most an eighth of the line too high.
test('ranks in a long line', () => {
  const waiters = new Waiters<Waiter>()
  let all = Array.from({ length: 2_000 }, (_, at) => waiter(`a/k/${at}`))
  for (const added of all) waiters.add(added)
  while (all.length > 100) {
    const left = new Set(all.filter((_, at) => at % 29 === 3))
    for (const gone of left) waiters.delete(gone)
    all = all.filter(other => !left.has(other))
    const excess = all.map((other, at) => (waiters.rank(other) ?? 0) - at - 1)
    expect(Math.min(...excess)).toBe(0)
    expect(Math.max(...excess)).toBeLessThanOrEqual(all.length / 8)
    expect(waiters.givesWay({ organizationId: 'b', keyPrefix: 'k' })).toBe(all.at(-1) ?? null)
    expect([...waiters]).toEqual(all)
  }
})
