import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { NamedAddresses } from '../../../src/vm/network/named-addresses.ts'

const item = (address: string, timeoutMs = 5_000) => ({ address, timeoutMs })

test('goal: an address is open for the longest time that it was told for, and no longer', () => {
  const clock = createManualClock()
  const named = new NamedAddresses(clock)
  expect(named.keep(item('198.51.100.1', 5_000), 'a')).toBe(true)
  expect(named.keep(item('198.51.100.1', 1_000), 'b')).toBe(true)
  clock.advance(2_000)
  expect(named.list()).toEqual([item('198.51.100.1', 3_000)])
  expect(named.keep(item('198.51.100.1', 9_000), 'b')).toBe(true)
  clock.advance(3_000)
  expect(named.list()).toEqual([item('198.51.100.1', 6_000)])
  clock.advance(6_000)
  expect(named.list()).toEqual([])
})

test('goal: there is place for so many, and one instance leaves place to others; time makes room', () => {
  const clock = createManualClock()
  const named = new NamedAddresses(clock, { countMax: 3, countOfOneMax: 2 })
  expect(['1', '2', '3'].map(n => named.keep(item(n), 'a'))).toEqual([true, true, false])
  // A known address takes no further place.
  expect(named.keep(item('1'), 'a')).toBe(true)
  expect(['3', '4'].map(n => named.keep(item(n), 'b'))).toEqual([true, false])
  clock.advance(5_000)
  expect(['5', '6', '7'].map(n => named.keep(item(n), 'a'))).toEqual([true, true, false])
  expect(named.list().map(({ address }) => address)).toEqual(['5', '6'])
})
