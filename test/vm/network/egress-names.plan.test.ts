// Goal: the kernel has room for the addresses that names lead to, those of the last daemon too.

import { expect, test } from 'bun:test'
import { namedAddressesMax, nameSetLines, openNamesText } from '../../../src/vm/network/egress-names.plan.ts'

test('goal: sets hold 16,384 addresses of each family, twice as many as the daemon remembers', () => {
  const lines = nameSetLines('inet strongroom', { port: 53, isStale: false })
  expect(lines.slice(0, 2)).toEqual([
    'add set inet strongroom names_v4 { type ipv4_addr; size 16384; flags timeout; }',
    'add set inet strongroom names_v6 { type ipv6_addr; size 16384; flags timeout; }',
  ])
  expect(namedAddressesMax).toBe(8_192)
})

test('goal: addresses of another list go, those of this one stay', () => {
  const flushes = (isStale: boolean) =>
    nameSetLines('inet strongroom', { port: 53, isStale }).filter(line => line.startsWith('flush set'))
  expect(flushes(false)).toEqual([])
  expect(flushes(true)).toEqual(['flush set inet strongroom names_v4', 'flush set inet strongroom names_v6'])
})

test('goal: an address is open for whole seconds, one at least', () => {
  const seconds = (timeoutMs: number) =>
    /timeout (\d+)s/.exec(openNamesText('strongroom', [{ address: '198.51.100.7', timeoutMs }]))?.[1]
  expect([0, 1, 1_000, 1_001, 90_000].map(seconds)).toEqual(['1', '1', '1', '2', '90'])
})
