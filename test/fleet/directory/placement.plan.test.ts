// Placement of instances over the hosts of a fleet.

import { expect, test } from 'bun:test'
import type { HostRow } from '../../../src/fleet/directory/feed.ts'
import { otherHosts, placementOf } from '../../../src/fleet/directory/placement.plan.ts'

const host = (id: string, more: Partial<HostRow> = {}): HostRow => ({
  ...{ id, name: id, platform: 'snp', places: 4, isDraining: false, hasLease: true },
  ...{ isLost: false, answersHosts: true, schema: 3, isBehind: false },
  ...more,
})
const wanted = { platform: 'snp', taken: new Map<string, number>() }

// Goal: the host with most free places gets it, so that instances spread; equal hosts are taken in one order.
test('the most free places', () => {
  const hosts = [host('b', { places: 6 }), host('a', { places: 6 }), host('c', { places: 9 })]
  expect(placementOf(hosts, wanted)).toEqual({ kind: 'placed', hostId: 'c' })
  expect(placementOf(hosts, { ...wanted, taken: new Map([['c', 3]]) })).toEqual({ kind: 'placed', hostId: 'a' })
  const behind = [host('b'), host('a', { places: 9, isBehind: true })]
  expect(placementOf(behind, wanted)).toEqual({ kind: 'placed', hostId: 'b' })
})

// Goal: a refusal names the condition that nobody was left for, and no host takes more than it has places for.
test.each([
  ['no host has a lease', []],
  ['no host has a lease', [host('a', { hasLease: false })]],
  ['every host that has a lease drains', [host('a', { hasLease: false }), host('b', { isDraining: true })]],
  [
    'no host that takes instances has the platform snp',
    [host('a', { platform: 'tcg' }), host('b', { isDraining: true })],
  ],
  [
    'every host that takes instances is still copying changes of the directory',
    [host('a', { isBehind: true }), host('b', { isDraining: true })],
  ],
  ['every host is full', [host('a'), host('b', { places: 0 }), host('c', { platform: null })]],
])('%s', (reason, hosts) => {
  expect(placementOf(hosts, { ...wanted, taken: new Map([['a', 4]]) })).toEqual({ kind: 'refused', reason })
})

// Goal: an instance goes to no host that knows nothing of a second attempt, nor back to its first.
test('other hosts', () => {
  const hosts = [host('first'), host('old', { schema: 2 }), host('new'), host('mute', { schema: null })]
  expect(otherHosts(hosts, 'first').map(({ id }) => id)).toEqual(['new'])
})
