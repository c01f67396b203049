// Goal: either family alone works, and what cannot be names its field and says what to write.

import { expect, test } from 'bun:test'
import { parseConfig, problemText } from '../../../src/config/parse.ts'

const problems = (text: string) => {
  const verdict = parseConfig(text, 'f')
  return verdict.ok ? [] : verdict.problems.map(problemText)
}
const alone = (rest = '', listen = 'inference = "[::]:8442"') =>
  `listen = { ${listen} }\ninference = { placement = "host" }\n${rest}\n[network]\npool_v4 = ""\npool_v6 = "2001:db8:88::/64"\nresolvers = ["2620:fe::9"]\n`

test('goal: IPv4 alone, IPv6 alone and both are sound', () => {
  expect(problems('')).toEqual([])
  expect(problems(alone())).toEqual([])
  expect(problems('[network]\npool_v6 = "2001:db8:88::/64"\nresolvers = ["9.9.9.9", "2620:fe::9"]')).toEqual([])
})

// Goal: one line for each mistake, with what to write instead.
test.each([
  [
    'pool_v4 = ""\nresolvers = []',
    'pool_v4: pool_v4 and pool_v6 are both "": instances would have no address; set one of them',
  ],
  [
    'pool_v6 = "2001:db8::/47"',
    'pool_v6: "2001:db8::/47" is not allowed; allowed: "" or an IPv6 network ADDRESS/N, N from 48 to 112',
  ],
  [
    'pool_v6 = "2001:db8::/113"',
    'pool_v6: "2001:db8::/113" is not allowed; allowed: "" or an IPv6 network ADDRESS/N, N from 48 to 112',
  ],
  [
    'pool_v6 = ":::/64"',
    'pool_v6: ":::/64" is not allowed; allowed: "" or an IPv6 network ADDRESS/N, N from 48 to 112',
  ],
  [
    'pool_v6 = "2001:db8::1/64"',
    'pool_v6: 2001:db8::1/64 is not in its short form, without bits after its prefix; write 2001:db8::/64',
  ],
  [
    'pool_v6 = "2001:0db8::/64"',
    'pool_v6: 2001:0db8::/64 is not in its short form, without bits after its prefix; write 2001:db8::/64',
  ],
  ['pool_v6 = "fe80::/64"', 'pool_v6: fe80::/64 has no addresses that instances can have; use a unicast network'],
  ['pool_v6 = "ff02::/64"', 'pool_v6: ff02::/64 has no addresses that instances can have; use a unicast network'],
  [
    'pool_v6 = "2001:db8::/64"\nmtu_bytes = 1279',
    'mtu_bytes: 1279 is below 1280, which IPv6 needs (pool_v6 is "2001:db8::/64")',
  ],
  ['gateway_v6 = "fe80::1"', 'gateway_v6: fe80::1 is not an address that instances can reach by its name'],
  [
    'gateway_v6 = "::g"',
    'gateway_v6: "::g" is not allowed; allowed: an IPv6 address in hexadecimal, not a link-local one',
  ],
  ['gateway_v6 = "fd00:0::1"', 'gateway_v6: fd00:0::1 is not in its short form; write fd00::1'],
  [
    'pool_v6 = "2001:db8::/64"\ngateway_v6 = "2001:db8::1"',
    'gateway_v6: 2001:db8::1 is in pool_v6 (2001:db8::/64), whose addresses instances get; choose one outside it',
  ],
  ['resolvers = ["2620:fe::9"]', 'resolvers.0: 2620:fe::9 is an IPv6 address, and instances have none (pool_v6 is "")'],
  [
    'pool_v6 = "2001:db8::/64"\nresolvers = ["2001:db8::9"]',
    'resolvers.0: 2001:db8::9 is in pool_v6 (2001:db8::/64), whose addresses instances get',
  ],
  ['public_v6 = "ff02::1"', 'public_v6: ff02::1 is not an address that clients can reach'],
  ['public_v6 = ":::"', 'public_v6: ":::" is not allowed; allowed: "" or an IPv6 address in hexadecimal'],
  [
    'pool_v6 = "2001:db8::/64"\npublic_v6 = "2001:db8::1"',
    'public_v6: 2001:db8::1 is in pool_v6 (2001:db8::/64), whose addresses instances get; use the address of this host',
  ],
  ['resolvers = ["::::"]', 'resolvers.0: "::::" is not allowed; allowed: an IP address'],
])('goal: the mistake in %j is reported', (text, problem) => {
  const found = problems(`[listen]\ninference = ""\n[network]\n${text}`)
  expect(found.map(line => line.replace(/^f:[0-9]+: network\./, ''))).toEqual([problem])
})

test('goal: who has IPv4 alone says so where there is none', () => {
  expect(problems(alone().replace('"host"', '"vm"'))).toEqual([
    expect.stringContaining('inference.placement: the VMs of the gateway have IPv4 alone'),
  ])
  expect(problems(alone('', 'inference = "0.0.0.0:8442"'))).toEqual([
    expect.stringContaining('listen.inference: 0.0.0.0:8442 takes IPv4 alone'),
  ])
  expect(
    problems(
      alone('', 'inference = "0.0.0.0:8442"').replace(
        '[network]',
        '[instances]\ninference_base_url = "https://gateway.example/v1"\n[network]',
      ),
    ),
  ).toEqual([])
  expect(problems(alone('', 'inference = "[::]:8442", builds = "[::]:8443"'))).toEqual([
    expect.stringContaining('listen.builds: VMs that build have IPv4 alone'),
  ])
  const noResolver = alone().replace('2620:fe::9', '9.9.9.9')
  expect(problems(noResolver)).toEqual([expect.stringContaining('network.resolvers.0: 9.9.9.9 is an IPv4 address')])
})
