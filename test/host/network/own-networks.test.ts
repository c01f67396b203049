import { expect, test } from 'bun:test'
import { ownNetworks } from '../../../src/host/network/own-networks.ts'

test('goal: the networks of all interfaces, each once, without addresses alone; those of IPv6 where they are asked for', () => {
  const interfaces = {
    lo: [
      { family: 'IPv4', cidr: '127.0.0.1/8' },
      { family: 'IPv6', cidr: '::1/128' },
    ],
    uplink: [
      { family: 'IPv4', cidr: '203.0.113.70/26' },
      { family: 'IPv4', cidr: '203.0.113.71/26' },
      { family: 'IPv6', cidr: '2001:db8::1/64' },
      { family: 'IPv6', cidr: 'fe80::1/64' },
    ],
    sr0123456789: [
      { family: 'IPv4', cidr: '169.254.88.1/32' },
      { family: 'IPv6', cidr: 'fd73:7472:6f6e:67::1/128' },
    ],
    odd: [{ family: 'IPv4', cidr: null }],
    gone: undefined,
  }
  expect(ownNetworks({ withV6: false, interfaces })).toEqual(['127.0.0.0/8', '203.0.113.64/26'])
  expect(ownNetworks({ withV6: true, interfaces })).toEqual(['127.0.0.0/8', '2001:db8::/64', '203.0.113.64/26'])
})
