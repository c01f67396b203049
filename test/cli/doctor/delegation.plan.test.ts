// Goal: what the zone above says of the domain is judged by the address of this host, with the records to write.

import { expect, test } from 'bun:test'
import { type DelegationFacts, delegationCheck, privateName } from '../../../src/cli/doctor/delegation.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'

const config = { ...defaultConfig(), domain: 'agents.acme.com' }
const asked = (nameServers: string[], addresses: string[]): DelegationFacts => ({
  kind: 'asked',
  zone: 'acme.com',
  by: 'dns1',
  nameServers,
  addresses,
})
const of = (facts: DelegationFacts, own: string[] = ['192.0.2.7']) => delegationCheck(facts, config, own)

test('goal: found at our address passes; nowhere, or elsewhere, fails with the records', () => {
  expect(of(asked(['ns.agents.acme.com'], ['192.0.2.7'])).result).toBe('PASS')
  expect(of(asked([], []))).toMatchObject({
    result: 'FAIL',
    remedy:
      'put into the zone acme.com: "agents.acme.com. NS ns.agents.acme.com." and "ns.agents.acme.com. A 192.0.2.7"',
  })
  expect(of(asked(['ns.x'], ['198.51.100.1']))).toMatchObject({
    result: 'FAIL',
    detail: expect.stringContaining('this host is 192.0.2.7'),
  })
  expect(of(asked(['ns.x'], [])).result).toBe('FAIL')
})

test('goal: what cannot be known is skipped with its reason', () => {
  expect(of({ kind: 'none', reason: 'no answer' })).toMatchObject({ result: 'SKIP', detail: 'no answer' })
  expect(of(asked(['ns.x'], ['192.0.2.7']), []).result).toBe('SKIP')
  const off = { ...config, listen: { ...config.listen, dns: '' } }
  expect(delegationCheck(asked([], []), off, []).result).toBe('SKIP')
})

test('goal: a host without IPv4 is found by its IPv6 address, and gets the AAAA record to write', () => {
  const own = ['2001:db8::10']
  expect(of(asked(['ns.x'], ['198.51.100.1', '2001:db8::10']), own).result).toBe('PASS')
  expect(of(asked(['ns.x'], ['198.51.100.1']), own)).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringMatching(/"ns\.agents\.acme\.com\. AAAA 2001:db8::10"; or correct network\.public_v6$/),
  })
  expect(of(asked([], []), ['192.0.2.7', '2001:db8::10'])).toMatchObject({
    remedy: expect.stringContaining('A 192.0.2.7" and "ns.agents.acme.com. AAAA 2001:db8::10"'),
  })
})

test('goal: names that only this host knows are no failure', () => {
  expect(privateName('agents.internal')).toContain('.internal')
  const zones = [
    ...['internal', 'test', 'example', 'invalid', 'localhost', 'local', 'onion', 'home.arpa', 'lan', 'intranet'],
    ...['corp', 'home'],
  ]
  for (const zone of zones) {
    const words = `names below .${zone} cannot be delegated: clients must query this host directly`
    expect([zone, privateName(`a.b.${zone}`)]).toEqual([zone, words])
    expect([zone, privateName(`a.my${zone}`)]).toEqual([zone, null])
  }
  expect([privateName('home.arpa'), privateName('arpa.com')]).toEqual([expect.stringContaining('.home.arpa'), null])
  expect(privateName('agents')).toContain('root')
  expect(privateName('agents.acme.com')).toBeNull()
  expect(privateName('internal.acme.com')).toBeNull()
})
