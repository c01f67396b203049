import { expect, test } from 'bun:test'
import { ownNetworks } from '../../../src/host/network/own-networks.ts'

test('goal: the networks of all interfaces, each once, without addresses alone and without IPv6', () => {
  const interfaces = {
    lo: [
      { family: 'IPv4', cidr: '127.0.0.1/8' },
      { family: 'IPv6', cidr: '::1/128' },
    ],
    uplink: [
      { family: 'IPv4', cidr: '203.0.113.70/26' },
      { family: 'IPv4', cidr: '203.0.113.71/26' },
      { family: 'IPv6', cidr: '2001:db8::1/64' },
    ],
    sr0123456789: [{ family: 'IPv4', cidr: '169.254.88.1/32' }],
    odd: [{ family: 'IPv4', cidr: null }],
    gone: undefined,
  }
  expect(ownNetworks(interfaces)).toEqual(['127.0.0.0/8', '203.0.113.64/26'])
})
