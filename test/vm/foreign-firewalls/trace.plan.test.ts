// Goal: a packet meets in the model what it meets in the kernel; what is not known never turns into certainty.

import { expect, test } from 'bun:test'
import {
  anywhere,
  anywhereV6,
  type Chain,
  type Fate,
  type Match,
  type Packet,
  parseNetwork,
  passesBy,
  type Rule,
  trace,
  type Value,
  type Verdict,
} from '../../../src/vm/foreign-firewalls/trace.plan.ts'

const network = (text: string) => parseNetwork(text) ?? anywhere
const packet: Packet = {
  name: 'p',
  family: 'ipv4',
  iifname: 'eth0',
  oifname: 'sr0000000000',
  saddr: anywhere,
  daddr: network('10.88.0.0/24'),
  protocol: 'tcp',
  sport: null,
  dport: 22,
  ct_state: 'new',
  ct_status: 'none',
}

const text = (word: string): Value => ({ kind: 'text', text: word })
const net = (word: string): Value => ({ kind: 'network', network: network(word) })
const range = (from: number, to = from): Value => ({ kind: 'range', from, to })
const is = (field: Exclude<Match, 'unknown'>['field'], ...values: Value[]): Match => ({
  field,
  isNegated: false,
  values,
})
const not = (field: Exclude<Match, 'unknown'>['field'], ...values: Value[]): Match => ({
  field,
  isNegated: true,
  values,
})
const accept = { kind: 'accept' } as const
const drop = { kind: 'drop' } as const
const rule = (verdict: Verdict | null, ...matches: Match[]): Rule => ({ matches, verdict })
const to = (kind: 'jump' | 'goto', target: string): Verdict => ({ kind, target })

function fateOf(policy: 'accept' | 'drop', rules: readonly Rule[], others: Record<string, readonly Rule[]> = {}) {
  const usual = { family: 'ip', table: 'filter' }
  const base: Chain = { ...usual, name: 'FORWARD', base: { hook: 'forward', policy }, rules }
  const more = Object.entries(others).map(([name, rules]): Chain => ({ ...usual, name, base: null, rules }))
  return trace(base, [base, ...more], packet)
}

const RULES: [string, 'accept' | 'drop', readonly Rule[], Fate][] = [
  ['an empty chain that accepts', 'accept', [], 'passes'],
  ['an empty chain that drops', 'drop', [], 'drops'],
  ['a rule that accepts', 'drop', [rule(accept)], 'passes'],
  ['a rule that drops', 'accept', [rule(drop)], 'drops'],
  ['the first rule decides', 'accept', [rule(accept), rule(drop)], 'passes'],
  ['a rule that decides nothing', 'drop', [rule(null)], 'drops'],
  ['return at a base chain means its policy', 'drop', [rule({ kind: 'return' }), rule(accept)], 'drops'],
  ['a rule of something unknown that accepts', 'drop', [rule(accept, 'unknown')], 'unsure'],
  ['a rule of something unknown that drops', 'accept', [rule(drop, 'unknown')], 'unsure'],
  ['something unknown that changes nothing', 'drop', [rule(drop, 'unknown')], 'drops'],
  ['an unknown verdict', 'accept', [rule({ kind: 'either' })], 'unsure'],
  ['unknown and no together are no', 'drop', [rule(accept, 'unknown', is('protocol', text('udp')))], 'drops'],
  ['its interface', 'drop', [rule(accept, is('iifname', text('eth0')))], 'passes'],
  ['another interface', 'drop', [rule(accept, is('oifname', text('docker0')))], 'drops'],
  ['a beginning of its interface', 'drop', [rule(accept, is('oifname', { kind: 'prefix', text: 'sr' }))], 'passes'],
  ['not another interface', 'drop', [rule(accept, not('oifname', text('docker0')))], 'passes'],
  ['one of several', 'drop', [rule(accept, is('dport', range(80), range(20, 25)))], 'passes'],
  ['none of several', 'drop', [rule(accept, not('dport', range(80), range(20, 25)))], 'drops'],
  ['a network that holds its own', 'drop', [rule(accept, is('daddr', net('10.0.0.0/8')))], 'passes'],
  ['a network within its own', 'drop', [rule(accept, is('daddr', net('10.88.0.4/30')))], 'unsure'],
  ['a network beside its own', 'drop', [rule(accept, is('daddr', net('10.89.0.0/24')))], 'drops'],
  ['who may call, nobody knows', 'drop', [rule(accept, is('saddr', net('192.0.2.0/24')))], 'unsure'],
  ['any port that nobody knows', 'drop', [rule(accept, is('sport', range(1, 1023)))], 'unsure'],
  ['its state', 'drop', [rule(accept, is('ct_state', text('established'), text('new')))], 'passes'],
  ['a value of another kind', 'drop', [rule(accept, is('dport', text('ssh')))], 'unsure'],
]

test.each(RULES)('goal: %s', (_, policy, rules, fate) => {
  expect(fateOf(policy, rules).fate).toBe(fate)
})

test('goal: jumps come back, gotos do not, and both follow what they find', () => {
  const user = [rule({ kind: 'return' })]
  expect(fateOf('drop', [rule(to('jump', 'u')), rule(accept)], { u: user }).fate).toBe('passes')
  expect(fateOf('drop', [rule(to('goto', 'u')), rule(accept)], { u: user }).fate).toBe('drops')
  expect(fateOf('accept', [rule(to('jump', 'u'))], { u: [rule(to('jump', 'v'))], v: [rule(drop)] }).fate).toBe('drops')
  expect(fateOf('drop', [rule(to('jump', 'u'))], { u: [rule(accept, 'unknown')] }).fate).toBe('unsure')
  // A chain that is not listed may do anything.
  expect(fateOf('accept', [rule(to('jump', 'SYNPROXY'))]).fate).toBe('unsure')
})

test('goal: whatever is written there, the walk ends', () => {
  expect(fateOf('drop', [rule(to('jump', 'u'))], { u: [rule(to('jump', 'v'))], v: [rule(to('jump', 'u'))] }).fate).toBe(
    'unsure',
  )
  // Each chain jumps twice to the next: 2^100 ways, each chain walked once.
  const chains = Object.fromEntries(
    Array.from({ length: 50 }, (_, n) => [`c${n}`, [rule(to('jump', `c${n + 1}`)), rule(to('jump', `c${n + 1}`))]]),
  )
  expect(fateOf('drop', [rule(to('jump', 'c0'))], { ...chains, c50: [] }).fate).toBe('drops')
})

test('goal: what drops is told: the rule, wherever it stands, or the policy', () => {
  expect(fateOf('drop', []).cause).toBe('policy drop of ip filter FORWARD')
  expect(fateOf('accept', [rule(null), rule(drop)]).cause).toBe('rule 2 of ip filter FORWARD')
  expect(fateOf('accept', [rule(to('jump', 'u'))], { u: [rule(drop)] }).cause).toBe('rule 1 of ip filter u')
  expect(fateOf('accept', []).cause).toBeNull()
})

test('goal: networks are read as they are written, and nothing else', () => {
  expect(parseNetwork('10.88.0.0/24')).toEqual({ first: 0x0a580000, last: 0x0a5800ff })
  expect(parseNetwork('fd00::/127')).toEqual({ first: 0xfdn << 120n, last: (0xfdn << 120n) + 1n })
  expect(parseNetwork('255.255.255.255')).toEqual({ first: 0xffffffff, last: 0xffffffff })
  for (const wrong of [
    '',
    '10.88.0.0/33',
    '256.0.0.1',
    '::1%eth0',
    '::ffff:10.1.2.3',
    'fd00::/129',
    'fd00::/8/1',
    'example',
    '10.88.0.0/255.255.255.0',
    '10.88.0.0/24/1',
    '10.88.0.0/',
  ]) {
    expect(parseNetwork(wrong)).toBeNull()
  }
})

test('goal: a packet of one family meets no network and no chain of the other', () => {
  const six: Packet = { ...packet, family: 'ipv6', saddr: anywhereV6, daddr: network('2001:db8::/64') }
  const chain = (family: string, ...rules: Rule[]): Chain => ({
    family,
    table: 't',
    name: 'f',
    rules,
    base: { hook: 'forward', policy: 'drop' },
  })
  const fate = (of: Packet, ...values: string[]) => {
    const all = chain('inet', rule(accept, is('daddr', ...values.map(net))))
    return trace(all, [all], of).fate
  }
  expect([fate(six, '2001:db8::/32'), fate(packet, '2001:db8::/32')]).toEqual(['passes', 'drops'])
  expect([fate(six, '0.0.0.0/0'), fate(packet, '0.0.0.0/0')]).toEqual(['drops', 'passes'])
  expect([fate(six, '2001:db8::7/128'), fate(packet, '10.88.0.7')]).toEqual(['unsure', 'unsure'])
  for (const [family, four, other] of [
    ['inet', true, true],
    ['ip', true, false],
    ['legacy', true, false],
    ['ip6', false, true],
    ['legacy6', false, true],
  ] as const)
    expect([family, passesBy(chain(family), packet), passesBy(chain(family), six)]).toEqual([family, four, other])
})
