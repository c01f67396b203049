import { expect, test } from 'bun:test'
import { isIPv6 } from 'node:net'
import fc from 'fast-check'
import { canonicalNetworkV6, coversV6, formatIpv6, mergedV6, parseIpv6, rangeOfV6 } from '../../src/base/ipv6.ts'

const anyAddress = fc.bigInt({ min: 0n, max: 2n ** 128n - 1n })
/** Addresses with many groups of zero. */
const sparse = fc
  .array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff })), { minLength: 8, maxLength: 8 })
  .map(groups => groups.reduce((value, group) => (value << 16n) | BigInt(group), 0n))

test('goal: every address has one text, the one that the URL standard has too, and is read back from it', () => {
  fc.assert(
    fc.property(fc.oneof(anyAddress, sparse), value => {
      const text = formatIpv6(value)
      expect(isIPv6(text)).toBe(true)
      expect(new URL(`http://[${text}]`).hostname).toBe(`[${text}]`)
      expect(parseIpv6(text)).toBe(value)
    }),
    { numRuns: 300 },
  )
  for (const [text, short] of [
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['::1', '::1'],
  ] as const)
    expect(formatIpv6(parseIpv6(text))).toBe(short)
})

test('goal: networks hold what is in them', () => {
  expect(canonicalNetworkV6('2001:db8::77/64')).toBe('2001:db8::/64')
  expect(canonicalNetworkV6('::1')).toBe('::1/128')
  expect(coversV6(rangeOfV6('fc00::/7'), rangeOfV6('fd73::1'))).toBe(true)
  expect(coversV6(rangeOfV6('fc00::/7'), rangeOfV6('fe00::'))).toBe(false)
  expect(rangeOfV6('::/0')).toEqual({ first: 0n, last: 2n ** 128n - 1n })
})

test('goal: merged ranges hold the same addresses, and none touch', () => {
  const range = fc.tuple(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 9 }))
  fc.assert(
    fc.property(fc.array(range, { maxLength: 8 }), pairs => {
      const ranges = pairs.map(([first, size]) => ({ first: BigInt(first), last: BigInt(first + size) }))
      const result = mergedV6(ranges)
      const holds = (list: typeof ranges, value: bigint) =>
        list.some(range => range.first <= value && value <= range.last)
      for (let value = 0n; value < 72n; value += 1n) expect(holds(result, value)).toBe(holds(ranges, value))
      for (const [at, range] of result.entries()) expect(range.first > (result[at - 1]?.last ?? -2n) + 1n).toBe(true)
    }),
    { numRuns: 100 },
  )
})
