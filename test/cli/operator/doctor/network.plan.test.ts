// Goal: forwarding, firewalls and ports get the right verdict, and each finding a command.

import { expect, test } from 'bun:test'
import { type NetworkFacts, networkChecks } from '../../../../src/cli/operator/doctor/network.plan.ts'
import { defaultConfig } from '../../../../src/config/load.ts'
import type { Listening } from '../../../../src/host/network/listening.ts'
import type { Chain, Rule } from '../../../../src/vm/firewall/trace.plan.ts'

const config = defaultConfig()
const chain = (
  policy: 'accept' | 'drop',
  { table = 'filter', family = 'ip', hook = 'forward', rules = [] as Rule[] } = {},
): Chain => ({
  ...{ family, table, name: 'FORWARD', rules },
  base: { hook: hook as 'forward' | 'input', policy },
})
const own = chain('accept', {
  family: 'inet',
  table: 'strongroom',
  rules: [{ matches: ['unknown'], verdict: { kind: 'accept' } }],
})
const facts = (change: Partial<NetworkFacts>): NetworkFacts => ({
  ...{
    forwards: true,
    uplink: 'eth0',
    listening: [],
    isRoot: true,
    ownTables: new Set(['strongroom', 'strongroom_guard']),
  },
  firewalls: { chains: [], unread: [] },
  ...change,
})
const with_ = (...chains: Chain[]) => facts({ firewalls: { chains, unread: [] } })
const results = (of: NetworkFacts, daemonPid: number | null = null) =>
  networkChecks(of, config, daemonPid).map(check => `${check.name} ${check.result}`)
const find = (of: NetworkFacts, name: string, daemonPid: number | null = null) =>
  networkChecks(of, config, daemonPid).find(check => check.name === name)

test('goal: forwarding for others is a warning, unless something drops it; off is no trouble', () => {
  expect(results(facts({}))).toEqual(['forwarding WARN', 'firewalls PASS', 'ports PASS'])
  expect(find(facts({}), 'forwarding')?.remedy).toContain('policy drop; iifname "sr*" accept; oifname "sr*" accept;')
  expect(results(facts({ forwards: false }))[0]).toBe('forwarding PASS')
  expect(results(facts({ forwards: null }))[0]).toBe('forwarding FAIL')
  expect(results(with_(chain('drop')))[0]).toBe('forwarding PASS')
  // Our own rules about guests are about nobody else; a rule of ours that drops the rest counts.
  expect(results(with_(own))[0]).toBe('forwarding WARN')
  const rest = { ...own, rules: [...own.rules, { matches: [], verdict: { kind: 'drop' } } as const] }
  expect(results(with_(rest))).toEqual(['forwarding PASS', 'firewalls PASS', 'ports PASS'])
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
    'forwarding SKIP',
    'firewalls SKIP',
    'ports PASS',
  ])
  expect(results(facts({ firewalls: null, isRoot: false }))).toEqual([
    'forwarding SKIP',
    'firewalls SKIP',
    'ports PASS',
  ])
})

const at = (protocol: 'tcp' | 'udp', host: string, port: number, pid: number | null, name = 'other'): Listening => ({
  ...{ protocol, host, port },
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
