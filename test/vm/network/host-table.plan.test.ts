import { expect, test } from 'bun:test'
import { gatewayVmHostPlan } from '../../../scripts/rigs/gateway/guests.ts'
import { hostPlan, nextHopV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { type HostTablePlan, hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { expectGolden } from '../../rigs/golden.ts'

test('the table of this host, plain and with all that it can have', () => {
  // Goal: the whole text is deliberate; a change shows up as a change of the golden text.
  expectGolden('nft-host.nft', hostTableText(hostPlan()))
  const all = {
    ...gatewayVmHostPlan(),
    nextHopV6,
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

test('goal: without a port, a gateway in a VM, or its address, nothing is mapped', () => {
  const mapped = (change: Partial<HostTablePlan>) =>
    hostTableText({ ...gatewayVmHostPlan(), ...change })
      .split('\n')
      .filter(line => line.includes(' dnat '))
  expect(mapped({}).length).toBeGreaterThan(0)
  const { gatewayVmService } = gatewayVmHostPlan()
  if (gatewayVmService === null) throw new Error('no gateway')
  for (const change of [
    { gatewayListen: null },
    { gatewayVmService: null },
    { gatewayListen: null, gatewayVmService: null },
    { gatewayVmService: { ...gatewayVmService, address: null } },
    { gatewayListen: null, gatewayVmService: { ...gatewayVmService, address: null } },
  ])
    expect([change, mapped(change)]).toEqual([change, []])
})

test('goal: instances reach the gateway at its own address, and clients at the address that the host listens on', () => {
  const rules = (address: string | null) =>
    hostTableText({
      ...gatewayVmHostPlan(),
      nextHop: '169.254.88.1',
      gatewayListen: { address, port: 8442 },
      gatewayVmService: { address: '10.88.0.5', port: 9000 },
    })
      .split('\n')
      .flatMap(line => /add rule inet \S+ (mapped.*)$/.exec(line)?.[1] ?? [])
  const to = 'tcp dport 8442 dnat ip to 10.88.0.5:9000'
  const own = `mapped_here ip daddr 169.254.88.1 ${to}`
  expect(rules(null)).toEqual([own])
  expect(rules('0.0.0.0')).toEqual([
    own,
    `mapped iifname != "sr-vms" fib daddr type local ${to}`,
    `mapped_here fib daddr type local ${to}`,
  ])
  expect(rules('192.0.2.1')).toEqual([
    own,
    `mapped iifname != "sr-vms" ip daddr 192.0.2.1 ${to}`,
    `mapped_here ip daddr 192.0.2.1 ${to}`,
  ])
})
