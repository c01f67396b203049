// Goal: nobody holds more of service C than its share, and turns go round among organizations.

import { expect, test } from 'bun:test'
import {
  inTurn,
  networkQuotas,
  ownersOf,
  PARTS,
  queueShare,
  reservedShare,
  type Standing,
} from '../../src/builds/shares.plan.ts'

const stranger = { organizationId: null, slug: null, keyPrefix: null }

test('goal: an organization counts once, a stranger for all strangers and for each of its networks', () => {
  expect(PARTS).toEqual({ uploads: 4, followers: 8 })
  expect(ownersOf({ ...stranger, organizationId: 'o1' }, '203.0.113.9', 4)).toEqual([{ name: 'o1', parts: 4 }])
  expect(ownersOf(stranger, '203.0.113.9', 4)).toEqual([
    { name: 'strangers', parts: 2 },
    { name: 'narrow 203.0.113.0/24', parts: 8 },
    { name: 'wide 203.0.0.0/16', parts: 4 },
  ])
  expect(networkQuotas('2001:db8:1:2ff::1')).toEqual([
    { name: 'narrow 2001:db8:1:200::/56', parts: 4 },
    { name: 'middle 2001:db8:1::/48', parts: 4 },
    { name: 'wide 2001:db8::/32', parts: 2 },
  ])
})

test('goal: half of the queue and of the VMs, at least one; a host without a queue lets nobody wait', () => {
  expect([0, 1, 2, 3, 8].map(queueShare)).toEqual([0, 1, 1, 1, 4])
  expect([1, 2, 3, 4, 5].map(reservedShare)).toEqual([1, 1, 1, 2, 2])
})

/** `waiting`: owners in the order of their builds. Returns owner and number of the build. */
function turns(waiting: string, standings: Record<string, Partial<Standing>> = {}): string {
  const builds = [...waiting].map((owner, at) => ({
    id: `${owner}${at}`,
    organizationId: owner === '-' ? null : owner,
  }))
  const standingOf = (owner: string | null) => ({ vms: 0, lastStartedMs: 0, ...standings[owner ?? '-'] })
  return inTurn(builds, standingOf)
    .map(({ id }) => id)
    .join(' ')
}

test('goal: the organization with the fewest VMs is next, then the one whose last build began first, then the oldest build', () => {
  expect(turns('')).toBe('')
  expect(turns('aaab')).toBe('a0 b3 a1 a2')
  expect(turns('ab', { a: { vms: 1 } })).toBe('b1 a0')
  expect(turns('ab', { a: { lastStartedMs: 2 }, b: { lastStartedMs: 1 } })).toBe('b1 a0')
  expect(turns('ab', { a: { vms: 1 }, b: { lastStartedMs: 9 } })).toBe('b1 a0')
  for (const [a, b, c, order] of [
    [0, 1, 2, 'a0 b1 c2'],
    [0, 2, 1, 'a0 c2 b1'],
    [1, 0, 2, 'b1 a0 c2'],
    [1, 2, 0, 'c2 a0 b1'],
    [2, 0, 1, 'b1 c2 a0'],
    [2, 1, 0, 'c2 b1 a0'],
  ] as const) {
    expect(turns('abc', { a: { vms: 5 * a }, b: { vms: 5 * b }, c: { vms: 5 * c } })).toBe(order)
    const began = { a: { lastStartedMs: a }, b: { lastStartedMs: b }, c: { lastStartedMs: c } }
    expect(turns('abc', began)).toBe(order)
  }
  expect(turns('aabb', { a: { vms: 2 } })).toBe('b2 b3 a0 a1')
  expect(turns('aabbcc')).toBe('a0 b2 c4 a1 b3 c5')
  // Turns that are given here count as later than all that have begun, in their own order.
  expect(turns('aabb', { a: { lastStartedMs: 2 }, b: { lastStartedMs: 1 } })).toBe('b2 a0 b3 a1')
  expect(turns('aaabbb', { a: { lastStartedMs: 2 }, b: { lastStartedMs: 1 } })).toBe('b3 a0 b4 a1 b5 a2')
  expect(turns('a-a-')).toBe('a0 -1 a2 -3')
})
