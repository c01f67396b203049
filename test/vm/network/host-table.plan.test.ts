import { expect, test } from 'bun:test'
import { gatewayHostPlan } from '../../../scripts/rigs/gateway/guests.ts'
import { gatewayV6, hostPlan } from '../../../scripts/rigs/guest/two-guests.ts'
import { type HostTablePlan, hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { expectGolden } from '../../rigs/golden.ts'

test('the table of this host, plain and with all that it can have', () => {
  // Goal: the whole text is deliberate; a change shows up as a change of the golden text.
  expectGolden('nft-host.nft', hostTableText(hostPlan()))
  const all = {
    ...gatewayHostPlan(),
    gatewayV6,
    sourceV6: { kind: 'masquerade' },
    dropOthers: true,
    namesPort: 53,
  } as const
  expectGolden('nft-host-all.nft', hostTableText(all))
})

test('goal: the source of packets is one of three, of each family', () => {
  const rules = (change: Partial<HostTablePlan>) =>
    hostTableText(hostPlan(change))
      .split('\n')
      .flatMap(line => / nat (meta .*)$/.exec(line)?.[1] ?? [])
  const [four, six] = ['ipv4', 'ipv6'].map(family => `meta nfproto ${family} iifname "sr-vms" oifname != "sr-vms"`)
  expect(rules({ source: { kind: 'pool' } })).toEqual([])
  expect(rules({})).toEqual([`${four} masquerade`])
  const snat = { source: { kind: 'snat', to: '192.0.2.7' }, sourceV6: { kind: 'snat', to: '2001:db8::7' } } as const
  expect(rules(snat)).toEqual([`${four} snat ip to 192.0.2.7`, `${six} snat ip6 to 2001:db8::7`])
})
