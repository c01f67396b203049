// Goal: no client, and no network that one client can have, takes so many of the nonces that are kept that others get none.

import { expect, test } from 'bun:test'
import { networksOf } from '../../../src/http/client-network.ts'
import { createNonceQuota, type NonceQuotaDeps } from '../../../src/inference/limits/nonce-quota.ts'
import { createManualClock } from '../../rigs/clock.ts'

const retentionMs = 24 * 3_600_000
const countMax = 6_400

function quotaWith(deps: Partial<NonceQuotaDeps> = {}) {
  const clock = createManualClock()
  const quota = createNonceQuota({ clock, retentionMs, countMax, ...deps })
  /** How many an address gets out of `tries`. */
  const taken = (addresses: Iterable<string>): number => {
    let count = 0
    for (const address of addresses) {
      if (quota.refusal(address) !== null) continue
      quota.take(address)
      count += 1
    }
    return count
  }
  return { clock, quota, taken }
}

const times = (count: number, address: (at: number) => string) => Array.from({ length: count }, (_, at) => address(at))

test('goal: addresses stand in the networks that one client can have', () => {
  const names = (address: string) => networksOf(address).map(one => one.name)
  expect(names('192.0.2.7')).toEqual(['192.0.2.0/24', '192.0.0.0/16'])
  expect(names('::ffff:192.0.2.7')).toEqual(['192.0.2.0/24', '192.0.0.0/16'])
  const v6 = ['2001:db8:1:200::/56', '2001:db8:1::/48', '2001:db8::/32']
  expect(names('2001:db8:1:2ff:1:2:3:4')).toEqual(v6)
  expect(names('2001:db8:1:2ff:1:2:3:4%eth0')).toEqual(v6)
  expect(names('::1')).toEqual(['0:0:0:0::/56', '0:0:0::/48', '0:0::/32'])
  for (const text of ['', 'nonsense', '1.2.3']) expect(names(text)).toEqual(['unknown', 'unknown'])
})

test('goal: a network gets a 64th, a wider one an eighth, and everybody else is still served', () => {
  const rows: [name: string, addresses: (at: number) => string, most: number][] = [
    ['one address', () => '192.0.2.7', 100],
    ['a /24', at => `192.0.2.${at % 256}`, 100],
    ['a /16', at => `192.0.${at % 256}.${(at >> 8) % 256}`, 800],
    ['one IPv6 host', () => '2001:db8::1', 100],
    ['a /56', at => `2001:db8:0:${(at % 256).toString(16)}::${at.toString(16)}`, 100],
    ['a /48', at => `2001:db8:0:${(at % 65_536).toString(16)}::1`, 200],
    ['a /32', at => `2001:db8:${(at % 65_536).toString(16)}::1`, 800],
    ['no address', () => '', 100],
  ]
  for (const [name, addresses, most] of rows) {
    const { quota, taken } = quotaWith()
    expect([name, taken(times(7_000, addresses))]).toEqual([name, most])
    for (const other of ['198.51.100.1', '2001:db9::1']) expect([name, quota.refusal(other)]).toEqual([name, null])
  }
})

test('goal: Retry-After says when there will be room, and then there is', () => {
  const { clock, quota, taken } = quotaWith()
  expect(taken(times(40, () => '192.0.2.7'))).toBe(40)
  clock.advance(6 * 3_600_000)
  expect(taken(times(100, () => '192.0.2.8'))).toBe(60)
  const refusal = quota.refusal('192.0.2.9')
  expect(refusal?.message).toContain('100 nonces within 24 hours')
  const waitS = refusal?.retryAfterSeconds ?? 0
  // No sooner than the first ones are forgotten, and at most a 60th later.
  expect(waitS * 1000).toBeWithin(18 * 3_600_000, 18 * 3_600_000 + retentionMs / 60 + 1)
  clock.advance(waitS * 1000 - 2_000)
  expect(quota.refusal('192.0.2.9')).not.toBeNull()
  clock.advance(2_000)
  expect(taken(times(100, () => '192.0.2.9'))).toBe(40)
})

test('goal: what is kept in memory is bounded; networks beyond it share an eighth, so that they cannot fill the ledger either', () => {
  const { clock, quota, taken } = quotaWith({ networksMax: 16 })
  const senders = (from: number) => times(5_000, at => `${from + (at % 40)}.${at % 250}.${at % 250}.1`)
  const got = taken(senders(10))
  expect(got).toBeLessThanOrEqual(16 * 100 + countMax / 8)
  expect(got).toBeGreaterThanOrEqual(countMax / 8)
  expect(quota.size()).toBeLessThanOrEqual(32)
  clock.advance(2 * retentionMs)
  expect(quota.refusal('192.0.2.1')).toBeNull()
  expect(quota.size()).toBe(0)
})

test('goal: whoever fills that memory out of one network is held to its part, and keeps nobody else out', () => {
  const { quota, taken } = quotaWith({ networksMax: 16 })
  expect(taken(times(7_000, at => `2001:db8:${at.toString(16)}::1`))).toBe(800)
  const others = times(10, at => `198.${at}.100.1`)
  expect(others.map(address => taken(times(100, () => address)))).toEqual(times(10, () => '').map(() => 100))
  expect(quota.refusal('2001:db8:ffff::1')).not.toBeNull()
})

test('goal: of the smallest ledger everybody can have one', () => {
  const { taken } = quotaWith({ countMax: 3 })
  expect(taken(['192.0.2.1', '192.0.2.2', '198.51.100.1', '2001:db8::1'])).toBe(3)
})
