import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { canonicalNetwork, containsRange, formatIpv4, merged, parseIpv4, rangeOf } from '../../src/base/ipv4.ts'

const address = fc.integer({ min: 0, max: 2 ** 32 - 1 })

test('goal: addresses are the numbers that they stand for, up to the last', () => {
  expect([parseIpv4('0.0.0.0'), parseIpv4('10.0.0.1'), parseIpv4('255.255.255.255')]).toEqual([
    0,
    167_772_161,
    2 ** 32 - 1,
  ])
  fc.assert(fc.property(address, value => parseIpv4(formatIpv4(value)) === value))
})

test('goal: a network is what lies behind its prefix, whatever bits stand after it', () => {
  const table = {
    '10.1.2.3/8': ['10.0.0.0/8', '10.0.0.0', '10.255.255.255'],
    '192.168.7.129/25': ['192.168.7.128/25', '192.168.7.128', '192.168.7.255'],
    '255.255.255.255/0': ['0.0.0.0/0', '0.0.0.0', '255.255.255.255'],
    '203.0.113.9': ['203.0.113.9/32', '203.0.113.9', '203.0.113.9'],
  }
  for (const [network, expected] of Object.entries(table)) {
    const { first, last } = rangeOf(network)
    expect([canonicalNetwork(network), formatIpv4(first), formatIpv4(last)]).toEqual(expected)
  }
})

test('goal: merged ranges hold the same addresses, and none touches another', () => {
  const ranges = fc.array(
    fc
      .tuple(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 9 }))
      .map(([first, more]) => ({ first, last: first + more })),
  )
  fc.assert(
    fc.property(ranges, given => {
      const result = merged(given)
      for (let at = 0; at < 60; at += 1) {
        const single = { first: at, last: at }
        expect(result.some(range => containsRange(range, single))).toBe(
          given.some(range => containsRange(range, single)),
        )
      }
      for (const [at, range] of result.slice(1).entries())
        expect(range.first).toBeGreaterThan((result[at]?.last ?? 0) + 1)
    }),
  )
})
