// Goal: a build reaches public addresses alone: the first and last address of each range that is none are refused, and
// its neighbours are not.

import { expect, test } from 'bun:test'
import { isPublicAddress } from '../../../src/linux/net/public-address.plan.ts'

// Ranges of RFC 6890 and its registry: address before (or none), first, last, address after (or none).
const RANGES = [
  ['-', '0.0.0.0', '0.255.255.255', '1.0.0.0'],
  ['9.255.255.255', '10.0.0.0', '10.255.255.255', '11.0.0.0'],
  ['100.63.255.255', '100.64.0.0', '100.127.255.255', '100.128.0.0'],
  ['126.255.255.255', '127.0.0.0', '127.255.255.255', '128.0.0.0'],
  ['169.253.255.255', '169.254.0.0', '169.254.255.255', '169.255.0.0'],
  ['172.15.255.255', '172.16.0.0', '172.31.255.255', '172.32.0.0'],
  ['191.255.255.255', '192.0.0.0', '192.0.0.255', '192.0.1.0'],
  ['192.0.1.255', '192.0.2.0', '192.0.2.255', '192.0.3.0'],
  ['192.88.98.255', '192.88.99.0', '192.88.99.255', '192.88.100.0'],
  ['192.167.255.255', '192.168.0.0', '192.168.255.255', '192.169.0.0'],
  ['198.17.255.255', '198.18.0.0', '198.19.255.255', '198.20.0.0'],
  ['198.51.99.255', '198.51.100.0', '198.51.100.255', '198.51.101.0'],
  ['203.0.112.255', '203.0.113.0', '203.0.113.255', '203.0.114.0'],
  ['223.255.255.255', '224.0.0.0', '255.255.255.255', '-'],
  ['-', '::', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '2000::'],
  ['2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '2001::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff', '2001:200::'],
  ['2001:db7:ffff:ffff:ffff:ffff:ffff:ffff', '2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', '2001:db9::'],
  ['2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '2002::', '2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '2003::'],
  ['3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff', '3fff:1000::'],
  ['3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '4000::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '-'],
] as const

test.each(RANGES)('goal: the range after %s, from %s to %s, and %s', (before, first, last, after) => {
  expect([first, isPublicAddress(first, [])]).toEqual([first, false])
  expect([last, isPublicAddress(last, [])]).toEqual([last, false])
  for (const outside of [before, after]) {
    if (outside !== '-') expect([outside, isPublicAddress(outside, [])]).toEqual([outside, true])
  }
})

test("goal: the host's own addresses and its VMs' networks are refused, with or without a prefix length", () => {
  const own = ['8.8.8.8', '9.9.0.0/16', '2600::1', '2a00:1:2::/48']
  const asked = ['8.8.8.8', '8.8.8.9', '9.9.255.1', '9.10.0.1', '2600::1', '2600::2', '2a00:1:2:3::4', '2a00:1:3::1']
  expect(asked.map(address => isPublicAddress(address, own))).toEqual([
    ...[false, true, false, true],
    ...[false, true, false, true],
  ])
})

test('goal: what is no plain address, and IPv4 in the form of IPv6, is refused', () => {
  for (const text of ['', 'localhost', '2a00::1%eth0', '::ffff:8.8.8.8', '64:ff9b::808:808', '8.8.8', '2a00::1/64']) {
    expect([text, isPublicAddress(text, [])]).toEqual([text, false])
  }
})
