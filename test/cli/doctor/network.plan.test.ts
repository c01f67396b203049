// Goal: forwarding, firewalls and ports get the right verdict, and each finding a command.

import { expect, test } from 'bun:test'
import { type NetworkFacts, networkChecks } from '../../../src/cli/doctor/network.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Forwarding } from '../../../src/host/network/forwarding.ts'
import type { Listening } from '../../../src/host/network/listening.ts'
import { type Need, neededPackets } from '../../../src/vm/firewall-probe/probe.plan.ts'

const config = defaultConfig()
const forwarding: Forwarding = { forwards: true, interfaces: ['eth0', 'eth1'] }
const facts = (change: Partial<NetworkFacts>): NetworkFacts => ({
  forwarding,
  forwardingV6: forwarding,
  listening: [],
  isRoot: true,
  provider: null,
  firewalls: { dropped: [], unknown: null },
  ...change,
})
const dropping = (is: (need: Need) => boolean, of = config) =>
  facts({ firewalls: { dropped: neededPackets(of).filter(is), unknown: null } })
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
  const of = (change: Partial<Forwarding>) => find(facts({ forwarding: { ...forwarding, ...change } }), 'forwarding')
  expect(of({ forwards: false })?.result).toBe('PASS')
  expect(of({ interfaces: ['eth0'] })?.result).toBe('PASS')
  expect(find(facts({ firewalls: { dropped: [], unknown: 'no route' } }), 'forwarding')).toMatchObject({
    result: 'SKIP',
    detail: 'no route',
  })
  const drop = { ...config, network: { ...config.network, forward_others: 'drop' } } as const
  expect(networkChecks(facts({}), drop, null)[0]?.remedy).toStartWith('start strongroom')
})

test('goal: a rule that drops what is forwarded for others counts as a policy does', () => {
  const others = dropping(({ kind }) => kind === 'others')
  expect(find(others, 'forwarding')?.detail).toBe('on; a firewall drops what is forwarded for others')
  expect(find(others, 'firewalls')?.result).toBe('PASS')
})

test('goal: what cuts instances off fails, what concerns our services warns, what is not known is not claimed', () => {
  const cut = find(
    dropping(({ name }) => name === 'SSH to instances'),
    'firewalls',
  )
  expect(cut).toMatchObject({ result: 'FAIL', remedy: expect.stringContaining('"oifname sr* accept"') })
  expect(cut?.detail).toBe('a firewall of this host drops SSH to instances')
  const all = networkChecks(
    dropping(() => true),
    config,
    null,
  ).filter(({ name }) => name === 'firewalls')
  expect(all.map(({ result }) => result)).toEqual(['FAIL', 'WARN'])
  expect(all[1]?.detail).toContain('clients to service A (tcp 8441)')
  expect(find(facts({ firewalls: { dropped: [], unknown: 'tc: exit code 2' } }), 'firewalls')).toMatchObject({
    result: 'SKIP',
    detail: 'tc: exit code 2',
  })
  expect(results(facts({ firewalls: null, isRoot: false }))).toEqual([
    'forwarding SKIP',
    'firewalls SKIP',
    'ports PASS',
  ])
})

const at = (protocol: 'tcp' | 'udp', host: string, port: number, pid: number | null, name = 'other'): Listening => ({
  protocol,
  host,
  port,
  holders: pid === null ? [] : [{ pid, name }],
})

test('goal: a port that somebody else has is told with its holder; ours, and other ports, are not', () => {
  const listening = [at('tcp', '0.0.0.0', 8441, 7), at('tcp', '0.0.0.0', 22, 1), at('tcp', '*', 8442, 3)]
  expect(find(facts({ listening }), 'ports', 7)?.result).toBe('PASS')
  // A child that the daemon has just forked has its sockets until it runs its program, and may be listed first.
  const [child, daemon] = [1595, 7].map(pid => ({ pid, name: 'strongroom' }))
  const forked = [{ ...at('tcp', '0.0.0.0', 8441, 7), holders: [child, daemon].flatMap(holder => holder ?? []) }]
  expect(find(facts({ listening: forked }), 'ports', 7)?.result).toBe('PASS')
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
    holders: [{ pid, name: 'dnsmasq' }],
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
  const found = (...families: string[]) =>
    networkChecks(
      dropping(({ kind, family }) => kind === 'others' && families.includes(family), v6),
      v6,
      null,
    ).flatMap(({ name, result }) => (name.startsWith('forwarding') ? [`${name} ${result}`] : []))
  expect(found('ipv6')).toEqual(['forwarding WARN', 'forwarding of IPv6 PASS'])
  expect(found('ipv4')).toEqual(['forwarding PASS', 'forwarding of IPv6 WARN'])
  expect(found('ipv4', 'ipv6')).toEqual(['forwarding PASS', 'forwarding of IPv6 PASS'])
})

test('goal: a console that others reach by an address alone is a warning; one that is off is no line', () => {
  const of = (listen: string, names: string[] = []) => {
    const changed = { ...config, listen: { ...config.listen, console: listen }, console: { ...config.console, names } }
    return networkChecks(facts({}), changed, null).find(({ name }) => name === 'console')
  }
  expect(of('')).toBeUndefined()
  expect(of('127.0.0.1:8444')).toMatchObject({ result: 'PASS', detail: 'at 127.0.0.1:8444, by localhost' })
  expect(of('[::1]:8444')?.result).toBe('PASS')
  expect(of('0.0.0.0:8444')).toMatchObject({ result: 'WARN', remedy: expect.stringContaining('console.names') })
  expect(of('0.0.0.0:8444', ['a.example'])).toMatchObject({
    result: 'PASS',
    detail: 'at 0.0.0.0:8444, by a.example',
  })
})

test('goal: an identity provider that does not answer is a warning with its fields; one that does shows the roles', () => {
  const own = {
    ...config.console.oidc,
    ...{ issuer: 'https://id.example', groups: [{ group: 'ops', role: 'operator' as const }] },
  }
  const judged = (provider: NetworkFacts['provider']) =>
    networkChecks(facts({ provider }), { ...config, console: { ...config.console, oidc: own } }, null)
      .filter(({ name }) => name === 'identity provider')
      .map(({ result, detail, remedy }) => [result, detail, remedy?.includes('console.oidc.issuer') ?? null])
  expect(judged({ ok: true, text: 'https://id.example answers, signs with RS256' })).toEqual([
    ['PASS', 'https://id.example answers, signs with RS256; ops: operator', null],
  ])
  expect(judged({ ok: false, text: 'https://id.example: refused' })).toEqual([
    ['WARN', 'https://id.example: refused', true],
  ])
  expect(judged(null)).toEqual([])
})
