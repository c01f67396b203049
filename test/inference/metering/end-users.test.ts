// Budgets of the end users of a key: each holds exactly, invented names do not help, and memory is bounded.

import { expect, test } from 'bun:test'
import { CALLER } from '../../../scripts/rigs/gateway/server.ts'
import type { EndUserBudget } from '../../../src/contract/key-rules.ts'
import { EndUsers, endUsersMax } from '../../../src/inference/metering/end-users.ts'
import type { Caller } from '../../../src/inference/types.ts'

const daily: EndUserBudget = { period: 'day', nanoUsd: 100, usersMax: 3, isRequired: false }

const callerOf = (budget: Partial<EndUserBudget> = {}, more: Partial<Caller> = {}): Caller => ({
  ...{ ...CALLER, ...more },
  budgets: { ...CALLER.budgets, endUser: { ...daily, ...budget } },
})

function bench(start = '2026-11-24T12:00:00Z', countMax = endUsersMax) {
  let nowMs = Date.parse(start)
  const users = new EndUsers({ nowMs: () => nowMs }, countMax)
  return {
    users,
    setNow: (time: string) => {
      nowMs = Date.parse(time)
    },
    /** Reserves, and ends the request with this cost at once; returns the refusal, or null. */
    spend: (caller: Caller, endUser: string | null, worst: number, cost = worst) => {
      const reserved = users.reserve(caller, endUser, worst)
      if (!reserved.ok) return reserved
      reserved.release(cost)
      reserved.release(cost)
      return null
    },
  }
}

// Goal: exactly to the budget, not more, with what runs; what a request did not cost is there again.
test('each end user has a budget of its own', () => {
  const { users, spend } = bench()
  const caller = callerOf()
  const first = users.reserve(caller, 'ann', 60)
  const second = users.reserve(caller, 'ann', 40)
  expect([first.ok, second.ok]).toEqual([true, true])
  expect(users.reserve(caller, 'ann', 1)).toEqual({
    ...{ ok: false, whose: 'this end user', period: '2026-11-24', mayFitSoon: true },
  })
  expect(spend(caller, 'bob', 100)).toBeNull()
  if (first.ok) first.release(20)
  expect(spend(caller, 'ann', 40)).toBeNull()
  expect(spend(caller, 'ann', 1)).toMatchObject({ mayFitSoon: true })
  if (second.ok) second.release(40)
  expect(spend(caller, 'ann', 1)).toMatchObject({ ok: false, mayFitSoon: false })
  expect(spend(callerOf({}, { keyPrefix: 'other000' }), 'ann', 100)).toBeNull()
})

// Goal: names beyond the key's number share one budget, and so do requests without a name: inventing names ends.
test('invented names share one budget', () => {
  const { users, spend } = bench()
  const caller = callerOf()
  for (const name of ['a', 'b', 'c']) expect(spend(caller, name, 100)).toBeNull()
  const refused: unknown[] = []
  for (let at = 0; at < 1_000; at += 1) refused.push(spend(caller, `invented-${at}`, 10))
  expect(refused.filter(verdict => verdict === null).length).toBe(10)
  expect(refused.at(-1)).toMatchObject({ whose: 'all end users above the limit of this key' })
  expect(users.count).toBe(3)
  expect(spend(caller, null, 100)).toBeNull()
  expect(spend(caller, null, 1)).toMatchObject({ whose: 'all requests without an end user' })
  // A name that equals a word of ours is a name like any other.
  const fresh = bench()
  expect(fresh.spend(caller, 'none', 100)).toBeNull()
  expect(fresh.spend(caller, null, 100)).toBeNull()
})

// Goal: a key may need the name in each request.
test('required names', () => {
  const { users, spend } = bench()
  const caller = callerOf({ isRequired: true })
  expect(() => users.reserve(caller, null, 1)).toThrow(
    'send `user` or `safety_identifier`, or in the Messages API `metadata.user_id`, with 1 to 256 characters and no control characters',
  )
  expect(spend(caller, 'ann', 1)).toBeNull()
})

// Goal: a new period begins every sum again and gives the places back; what still runs is charged in the new one.
test.each([
  ['day', '2026-11-24T23:59:59Z', '2026-11-25T00:00:00Z', '2026-11-25'],
  ['week', '2026-11-29T23:59:59Z', '2026-11-30T00:00:00Z', '2026-11-30/P7D'],
  ['month', '2026-11-30T23:59:59Z', '2026-12-01T00:00:00Z', '2026-12'],
] as const)('a new %s', (period, before, after, name) => {
  const { users, spend, setNow } = bench(before)
  const caller = callerOf({ period })
  const late = users.reserve(caller, 'late', 70)
  expect(spend(caller, 'ann', 100)).toBeNull()
  expect(users.count).toBe(2)
  setNow(after)
  expect(spend(caller, 'ann', 100)).toBeNull()
  expect(spend(caller, 'late', 31)).toMatchObject({ period: name, mayFitSoon: true })
  if (late.ok) late.release(70)
  expect(spend(caller, 'late', 31)).toMatchObject({ mayFitSoon: false })
  expect(spend(caller, 'late', 30)).toBeNull()
})

// Goal: names of all keys have a bound, an organization holds a quarter at most, and a day later unused keys hold none.
test('memory is bounded and shared fairly', () => {
  const { users, spend, setNow } = bench('2026-11-24T12:00:00Z', 8)
  const many = callerOf({ usersMax: 1_000 }, { organizationId: 'many' })
  for (let at = 0; at < 100; at += 1) spend(many, `user-${at}`, 1)
  expect(users.count).toBe(2)
  const few = callerOf({}, { organizationId: 'few' })
  for (const name of ['a', 'b']) expect(spend(few, name, 100)).toBeNull()
  expect(users.count).toBe(4)
  expect(spend(many, 'user-500', 10)).toMatchObject({ whose: 'all end users above the limit of this key' })
  setNow('2026-11-25T00:00:00Z')
  expect(spend(callerOf({}, { organizationId: 'third' }), 'x', 1)).toBeNull()
  expect(users.count).toBe(1)
})

// Goal: only an end user with a cost holds a place: neither a refused request nor one that failed for nothing does.
test('requests without a cost hold no place', () => {
  const { users, spend, setNow } = bench()
  const caller = callerOf()
  expect(spend(caller, 'ann', 60)).toBeNull()
  expect(users.count).toBe(1)
  for (let at = 0; at < 10; at += 1) {
    expect(spend(caller, `refused-${at}`, 101)).toMatchObject({ ok: false, whose: 'this end user' })
    expect(spend(caller, `failed-${at}`, 50, 0)).toBeNull()
    expect(users.count).toBe(1)
  }
  // A name stays while one of its requests runs, and for as long as it has a cost.
  const first = users.reserve(caller, 'bob', 40)
  const second = users.reserve(caller, 'bob', 40)
  if (first.ok) first.release(0)
  expect([users.count, spend(caller, 'bob', 61)]).toEqual([2, expect.objectContaining({ ok: false })])
  if (second.ok) second.release(1)
  expect(spend(caller, 'ann', 41)).toMatchObject({ ok: false, mayFitSoon: false })
  expect(users.count).toBe(2)
  // One that began before the new period, and a later one of the same name, give back one place.
  const late = users.reserve(caller, 'eve', 0)
  setNow('2026-11-25T00:00:00Z')
  expect(spend(caller, 'eve', 10)).toBeNull()
  if (late.ok) late.release(0)
  expect(users.count).toBe(1)
})

// Goal: a budget that an operator lowers counts at once, and one that is removed refuses nothing.
test('changes of the budget', () => {
  const { users, spend } = bench()
  expect(spend(callerOf(), 'ann', 60)).toBeNull()
  expect(spend(callerOf({ nanoUsd: 70 }), 'ann', 11)).toMatchObject({ ok: false, mayFitSoon: false })
  expect(spend(callerOf({ nanoUsd: 200 }), 'ann', 140)).toBeNull()
  expect(users.reserve(CALLER, 'ann', 1_000_000).ok).toBe(true)
})
