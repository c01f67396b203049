// Goal: an address that cannot work is refused at its own question, with what to type instead; one that works under a
// condition gets a remark.

import { expect, test } from 'bun:test'
import { type AddressFacts, addressVerdict } from '../../../src/cli/init/addresses.plan.ts'

const facts: AddressFacts = {
  own: ['192.0.2.10', '2001:db8::10'],
  listensOnAll: true,
  routeV4: '192.0.2.10',
  listening: [
    { protocol: 'tcp', host: '0.0.0.0', port: 8442, holders: [{ pid: 7, name: 'other' }] },
    { protocol: 'tcp', host: '*', port: 8443, holders: [{ pid: 9, name: 'strongroom' }] },
    { protocol: 'tcp', host: '0.0.0.0', port: 9000, holders: [] },
    { protocol: 'udp', host: '0.0.0.0', port: 9001, holders: [{ pid: 7, name: 'other' }] },
  ],
  daemonPid: 9,
}

test('goal: each answer by itself', () => {
  const rows: [field: string, answer: string, kind: string, words: string][] = [
    ['network.public_v4', '192.0.2.10', 'good', ''],
    ['network.public_v4', '', 'remark', 'that is 192.0.2.10'],
    ['network.public_v4', '198.51.100.1', 'remark', 'NAT'],
    ['network.public_v6', '2001:db8::10', 'good', ''],
    ['network.public_v6', '', 'refused', 'type the address'],
    ['network.pool_v4', '10.88.0.0/24', 'good', ''],
    ['network.pool_v4', '192.0.2.0/24', 'refused', 'contains 192.0.2.10'],
    ['network.pool_v4', '10.88.0.1/24', 'refused', 'type 10.88.0.0/24'],
    ['network.pool_v6', '2001:db8::/48', 'refused', 'contains 2001:db8::10'],
    ['network.pool_v6', '2001:db8:1::/48', 'good', ''],
    ['network.pool_v6', '2001:DB8:1::/48', 'good', ''],
    ['listen.inference', '0.0.0.0:8442', 'refused', 'other (process 7) has port 8442'],
    ['listen.inference', '[::]:8442', 'refused', 'other (process 7)'],
    ['listen.inference', '[2001:db8::10]:8442', 'good', ''],
    ['listen.builds', '0.0.0.0:8443', 'good', ''],
    ['listen.builds', '0.0.0.0:9000', 'good', ''],
    ['listen.builds', '0.0.0.0:9001', 'good', ''],
    ['listen.builds', '203.0.113.1:8443', 'refused', 'no interface of this host has 203.0.113.1'],
    ['listen.builds', '', 'good', ''],
    ['listen.builds', 'nonsense', 'good', ''],
    ['domain', 'agents.test', 'good', ''],
  ]
  for (const [field, answer, kind, words] of rows) {
    const verdict = addressVerdict(field, answer, facts)
    expect([field, answer, verdict.kind]).toEqual([field, answer, kind])
    expect([field, answer, 'text' in verdict ? verdict.text : '']).toEqual([
      field,
      answer,
      expect.stringContaining(words),
    ])
  }
})

test('goal: without a daemon a socket of an unknown program counts, without a route nothing is assumed', () => {
  const bare = { ...facts, daemonPid: null, routeV4: null }
  expect(addressVerdict('listen.builds', '0.0.0.0:9000', bare)).toMatchObject({ kind: 'refused' })
  expect(addressVerdict('network.public_v4', '', bare)).toMatchObject({ kind: 'refused' })
  expect(addressVerdict('network.public_v4', '', { ...bare, listensOnAll: false })).toEqual({ kind: 'good' })
  expect(addressVerdict('listen.builds', '0.0.0.0:9000', { ...bare, listening: null })).toEqual({ kind: 'good' })
})
