// Goal: a guest learns of the families that it has, and of their resolvers alone.

import { expect, test } from 'bun:test'
import { networkOf } from '../../../src/vm/network/guest-network.plan.ts'

const host = {
  nextHop: '169.254.88.1',
  nextHopV6: 'fe80::1',
  nextHopMac: '02:00:00:00:00:01',
  mtuBytes: 1_500,
  resolvers: ['192.0.2.53', '2001:db8::53'],
}
const v4 = { address: '10.88.0.1', gateway: '169.254.88.1' }
const v6 = { v6: { address: 'fd00::2', gateway: 'fe80::1', gatewayMac: '02:00:00:00:00:01' } }

test('goal: IPv4, IPv6, both and none', () => {
  const of = (address: string | null, addressV6: string | null) => networkOf(host, { address, addressV6 })
  expect(of('10.88.0.1', null)).toEqual({ ...v4, mtuBytes: 1_500, resolvers: ['192.0.2.53'] })
  expect(of(null, 'fd00::2')).toEqual({ ...v6, mtuBytes: 1_500, resolvers: ['2001:db8::53'] } as never)
  expect(of('10.88.0.1', 'fd00::2')).toEqual({ ...v4, ...v6, mtuBytes: 1_500, resolvers: host.resolvers })
  expect(of(null, null)).toEqual({ mtuBytes: 1_500, resolvers: [] } as never)
})
