// Goal: forwarding, firewalls and ports get the right verdict, and each finding a command.

import { expect, test } from 'bun:test'
import { type NetworkFacts, networkChecks } from '../../../src/cli/doctor/network.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { OtherForwarding } from '../../../src/host/network/forwarding.ts'
import type { Listening } from '../../../src/host/network/listening.ts'
import type { Chain, Rule } from '../../../src/vm/foreign-firewalls/trace.plan.ts'

const config = defaultConfig()
const chain = (
  policy: 'accept' | 'drop',
  { table = 'filter', family = 'ip', hook = 'forward', rules = [] as Rule[] } = {},
): Chain => ({ family, table, name: 'FORWARD', rules, base: { hook: hook as 'forward' | 'input', policy } })
const forwarding: OtherForwarding = { forwards: true, interfaces: ['eth0', 'eth1'], droppedBy: [], droppedByUs: false }
const facts = (change: Partial<NetworkFacts>): NetworkFacts => ({
  forwarding,
  forwardingV6: forwarding,
  uplink: 'eth0',
  listening: [],
  isRoot: true,
  ownTables: new Set(['strongroom', 'strongroom_guard']),
  firewalls: { chains: [], unread: [] },
  ...change,
})
const with_ = (...chains: Chain[]) => facts({ firewalls: { chains, unread: [] } })
const results = (of: NetworkFacts, daemonPid: number | null = null) =>
  networkChecks(of, config, daemonPid).map(check => `${check.name} ${check.result}`)
const find = (of: NetworkFacts, name: string, daemonPid: number | null = null) =>
  networkChecks(of, config, daemonPid).find(check => check.name === name)

test('goal: forwarding for others between networks is a warning, unless something drops it; off is no trouble', () => {
  expect(results(facts({}))).toEqual(['forwarding WARN', 'firewalls PASS', 'ports PASS'])
  expect(find(facts({}), 'forwarding')).toMatchObject({
    detail: expect.stringContaining('as a router between eth0, eth1'),
    remedy: expect.stringContaining('network.forward_others = "drop"'),
  })
  const of = (change: Partial<OtherForwarding>) =>
    find(facts({ forwarding: { ...forwarding, ...change } }), 'forwarding')
  expect(of({ forwards: false })?.result).toBe('PASS')
  expect(of({ interfaces: ['eth0'] })?.result).toBe('PASS')
  expect(of({ droppedByUs: true })?.detail).toContain('network.forward_others')
  expect(of({ droppedBy: ['ip filter FORWARD'] })?.detail).toContain('ip filter FORWARD drops')
  expect(find(facts({ forwarding: null }), 'forwarding')?.result).toBe('SKIP')
  expect(find(facts({ forwarding: 'nft: exit code 1' }), 'forwarding')).toMatchObject({
    result: 'SKIP',
    detail: 'nft: exit code 1',
  })
  const drop = { ...config, network: { ...config.network, forward_others: 'drop' } } as const
  expect(networkChecks(facts({}), drop, null)[0]?.remedy).toStartWith('start strongroom')
})

test('goal: rules that drop count as a policy does, those that may drop do not', () => {
  const rejecting = chain('accept', {
    table: 'firewalld',
    family: 'inet',
    rules: [{ matches: [], verdict: { kind: 'drop' } }],
  })
  expect(find(with_(rejecting), 'forwarding')?.detail).toContain('inet firewalld FORWARD drops')
  const may = chain('accept', { rules: [{ matches: ['unknown'], verdict: { kind: 'drop' } }] })
  expect(find(with_(may), 'forwarding')?.result).toBe('WARN')
})

test('goal: what cuts instances off fails; what only may, or concerns our services, warns', () => {
  const cut = find(with_(chain('drop')), 'firewalls')
  expect(cut).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringContaining('iptables --table filter --insert FORWARD'),
  })
  expect(cut?.detail).toStartWith('ip filter FORWARD drops SSH to instances, ')
  const may = chain('drop', { rules: [{ matches: ['unknown'], verdict: { kind: 'accept' } }] })
  expect(find(with_(may), 'firewalls')).toMatchObject({ result: 'WARN', detail: expect.stringContaining('may drop') })
  const input = with_(chain('drop', { hook: 'input' }))
  expect(find(input, 'firewalls')).toMatchObject({ result: 'WARN', detail: expect.stringContaining('service A') })
  expect(results(facts({ firewalls: { chains: [], unread: ['nft: x'] } }))).toEqual([
    'forwarding WARN',
    'firewalls SKIP',
    'ports PASS',
  ])
  expect(results(facts({ forwarding: null, firewalls: null, isRoot: false }))).toEqual([
    'forwarding SKIP',
    'firewalls SKIP',
    'ports PASS',
  ])
})

const at = (protocol: 'tcp' | 'udp', host: string, port: number, pid: number | null, name = 'other'): Listening => ({
  protocol,
  host,
  port,
  holder: pid === null ? null : { pid, name },
})

test('goal: a port that somebody else has is told with its holder; ours, and other ports, are not', () => {
  const listening = [at('tcp', '0.0.0.0', 8441, 7), at('tcp', '0.0.0.0', 22, 1), at('tcp', '*', 8442, 3)]
  expect(find(facts({ listening }), 'ports', 7)?.result).toBe('PASS')
  expect(find(facts({ listening }), 'ports')).toMatchObject({
    result: 'FAIL',
    detail: 'other (pid 7) has tcp 0.0.0.0:8441 (listen.instances)',
    remedy:
      'systemctl status 7 names its unit: stop and disable that; or give listen.instances another port than tcp 8441',
  })
  const stub = [at('udp', '127.0.0.53', 53, 4, 'systemd-resolve')]
  expect(find(facts({ listening: stub }), 'ports')).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringContaining('DNSStubListener=no'),
  })
})

test('goal: a holder that cannot be seen is not guessed', () => {
  const listening = [at('tcp', '*', 8441, null)]
  expect(find(facts({ listening }), 'ports')?.result).toBe('FAIL')
  expect(find(facts({ listening }), 'ports', 7)?.result).toBe('PASS')
  expect(find(facts({ listening, isRoot: false }), 'ports')?.result).toBe('PASS')
  expect(find(facts({ listening: 'ss: exit code 1' }), 'ports')).toMatchObject({
    result: 'SKIP',
    detail: 'ss: exit code 1',
  })
})

test('goal: whoever has the place where instances ask for names is named; without a list nothing is said', () => {
  const names = { ...config, network: { ...config.network, allow_names: ['crates.io'] } }
  const check = (listening: Listening[], daemonPid: number | null = 7) =>
    networkChecks(facts({ listening }), names, daemonPid).find(({ name }) => name === 'names')
  const at = (host: string, pid: number, protocol: 'udp' | 'tcp' = 'udp'): Listening => ({
    protocol,
    host,
    port: 53,
    holder: { pid, name: 'dnsmasq' },
  })
  expect(find(facts({}), 'names')).toBeUndefined()
  expect(check([at('169.254.88.1', 7), at('0.0.0.0', 8, 'tcp'), at('192.0.2.1', 8)])).toMatchObject({
    result: 'PASS',
    detail: expect.stringContaining('9.9.9.9'),
  })
  for (const host of ['169.254.88.1', '0.0.0.0', '*', 'fd73:7472:6f6e:67::1'])
    expect(check([at(host, 8)])).toMatchObject({ result: 'FAIL', detail: expect.stringContaining('dnsmasq (pid 8)') })
})

test('goal: rules count for the family whose packets they drop, and for no other', () => {
  const v6 = { ...config, network: { ...config.network, pool_v6: '2001:db8:88::/64' } }
  const dropping = (family: string): Chain =>
    chain('accept', { family, rules: [{ matches: [], verdict: { kind: 'drop' } }] })
  const found = (family: string) =>
    networkChecks(with_(dropping(family)), v6, null).flatMap(({ name, result }) =>
      name.startsWith('forwarding') ? [`${name} ${result}`] : [],
    )
  expect(found('ip6')).toEqual(['forwarding WARN', 'forwarding of IPv6 PASS'])
  expect(found('ip')).toEqual(['forwarding PASS', 'forwarding of IPv6 WARN'])
  expect(found('inet')).toEqual(['forwarding PASS', 'forwarding of IPv6 PASS'])
})
