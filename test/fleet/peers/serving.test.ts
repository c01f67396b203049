// Which hosts of a fleet DNS names beside its own.

import { expect, test } from 'bun:test'
import { servingHosts } from '../../../src/fleet/peers/serving.ts'

const services = (v4: unknown, v6: unknown = null) => {
  const pair = { v4, v6 }
  return { ns: pair, instances: pair, inference: null, builds: null }
}
const row = (hostId: string, hasLease: boolean, says: unknown) => ({
  ...{ hostId, name: hostId, address: null, certificate: null },
  hasLease,
  services: says,
})

// Goal: clients are led to hosts that are there, each in its turn, and to nothing that is no address.
test('hosts that serve', () => {
  const [a, b, c, d] = [
    services('192.0.2.1'),
    services('192.0.2.2', '2001:db8::2'),
    services(null, '2001:db8::3'),
    services('192.0.2.4'),
  ]
  const rows = [
    row('own', true, services('192.0.2.9')),
    row('a', true, a),
    row('gone', false, services('192.0.2.8')),
    row('b', true, b),
    row('new', true, null),
    row('c', true, c),
    ...['192.0.2.256', 'localhost', '', 7, '::1'].map(v4 => row('wrong', true, services(v4))),
    ...['fe80::1%eth0', '::ffff:192.0.2.1', '192.0.2.1', 'x'].map(v6 => row('wrong', true, services(null, v6))),
    row('wrong', true, 'text'),
    row('later', true, { ...d, builds: { v4: 'x', v6: null }, more: 1 }),
  ]
  const named = (turn: number) => servingHosts(rows, { hostId: 'own', turn })
  expect<unknown>([0, 1, 2, 3, 4].map(named)).toEqual([
    [a, b, c, d],
    [b, c, d, a],
    [c, d, a, b],
    [d, a, b, c],
    [a, b, c, d],
  ])
  expect(servingHosts([], { hostId: 'own', turn: 5 })).toEqual([])
})
