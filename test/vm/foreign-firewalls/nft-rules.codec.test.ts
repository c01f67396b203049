// Goal: nft's JSON listing is read, an expression that is not understood becomes unknown, and any other text is
// refused. foreign.driver.alone.test.ts reads listings of the real nft.

import { expect, test } from 'bun:test'
import { rangeOfV6 } from '../../../src/base/ipv6.ts'
import { runToEnd } from '../../../src/base/work/turns.ts'
import { readNftRules } from '../../../src/vm/foreign-firewalls/nft-rules.codec.ts'
import type { Match, Rule } from '../../../src/vm/foreign-firewalls/trace.plan.ts'

const parseNftRules = (text: string) => runToEnd(readNftRules(text))
const chain = { family: 'inet', table: 'fw', name: 'f', type: 'filter', hook: 'forward', prio: 0, policy: 'drop' }
const listOf = (...items: object[]) => JSON.stringify({ nftables: [{ metainfo: {} }, ...items] })
const rulesOf = (...expr: object[]): readonly Rule[] | undefined =>
  parseNftRules(listOf({ chain }, { rule: { family: 'inet', table: 'fw', chain: 'f', handle: 1, expr } }))[0]?.rules
const matchesOf = (left: object, right: unknown, op = '=='): readonly Match[] | undefined =>
  rulesOf({ match: { op, left, right } }, { drop: null })?.[0]?.matches
const tcp: Match = { field: 'protocol', isNegated: false, values: [{ kind: 'text', text: 'tcp' }] }

test('goal: base chains of both families, with hook and policy', () => {
  const others = [
    { ...chain, family: 'ip6' },
    { ...chain, family: 'bridge' },
    { ...chain, name: 'n', type: 'nat', hook: 'prerouting' },
    { ...chain, name: 'o', hook: 'output' },
    { family: 'ip', table: 't', name: 'u' },
  ]
  const read = parseNftRules(
    listOf({ table: { family: 'inet', name: 'fw' } }, { chain }, ...others.map(chain => ({ chain }))),
  )
  expect(read.map(({ family, name, base }) => [family, name, base])).toEqual([
    ['inet', 'f', { hook: 'forward', policy: 'drop' }],
    ['ip6', 'f', { hook: 'forward', policy: 'drop' }],
    ['inet', 'n', null],
    ['inet', 'o', null],
    ['ip', 'u', null],
  ])
})

test('goal: a port says which protocol it is of', () => {
  const dport = { payload: { protocol: 'tcp', field: 'dport' } }
  expect(matchesOf(dport, { set: [22, { range: [80, 90] }] }, '!=')).toEqual([
    tcp,
    {
      field: 'dport',
      isNegated: true,
      values: [
        { kind: 'range', from: 22, to: 22 },
        { kind: 'range', from: 80, to: 90 },
      ],
    },
  ])
  expect(matchesOf({ payload: { protocol: 'th', field: 'dport' } }, 53)).toHaveLength(1)
  expect(matchesOf({ payload: { protocol: 'icmp', field: 'type' } }, 'echo-request')).toEqual([
    { field: 'protocol', isNegated: false, values: [{ kind: 'text', text: 'icmp' }] },
    'unknown',
  ])
  expect(matchesOf({ payload: { protocol: 'ip6', field: 'saddr' } }, '::1')?.[0]).toMatchObject({ field: 'family' })
})

test('goal: what nobody can tell is unknown', () => {
  const saddr = { payload: { protocol: 'ip', field: 'saddr' } }
  const odd = { prefix: { addr: 'fe80::1%eth0', len: 8 } }
  for (const right of ['@blocked', { set: ['@blocked'] }, 'host.example', odd, null]) {
    expect(matchesOf(saddr, right)).toEqual([
      { field: 'family', isNegated: false, values: [{ kind: 'text', text: 'ipv4' }] },
      'unknown',
    ])
  }
  expect(matchesOf({ concat: [] }, { set: [] })).toEqual(['unknown'])
  expect(matchesOf({ ct: { key: 'status' } }, 'assured', 'in')).toEqual(['unknown'])
  expect(matchesOf({ meta: { key: 'iifname' } }, 'a', '<')).toEqual(['unknown'])
  expect(rulesOf({ limit: { rate: 3 } }, { accept: null })).toEqual([
    { matches: ['unknown'], verdict: { kind: 'accept' } },
  ])
  expect(rulesOf({ 'a statement of next year': 1 }, { drop: null })).toEqual([
    { matches: ['unknown'], verdict: { kind: 'drop' } },
  ])
})

test('goal: a rate that hangs on a set or meter is a match; adding to a set is none', () => {
  const elem = { payload: { protocol: 'ip', field: 'saddr' } }
  const limit = { limit: { rate: 4, burst: 5, per: 'minute', inv: true } }
  const drops = (statement: object) => rulesOf(statement, { drop: null })
  expect(drops({ set: { op: 'add', elem, set: '@banned', stmt: [limit] } })?.[0]?.matches).toEqual(['unknown'])
  expect(drops({ meter: { key: elem, stmt: limit, size: 65535, name: 'm' } })?.[0]?.matches).toEqual(['unknown'])
  expect(drops({ set: { op: 'add', elem, set: '@banned' } })?.[0]?.matches).toEqual([])
})

test('goal: verdict maps are as many rules as they have verdicts; a named one may say anything', () => {
  const key = { ct: { key: 'state' } }
  expect(
    rulesOf({
      vmap: {
        key,
        data: {
          set: [
            ['invalid', { drop: null }],
            ['established', { accept: null }],
          ],
        },
      },
    })?.map(rule => rule.verdict),
  ).toEqual([{ kind: 'drop' }, { kind: 'accept' }])
  expect(rulesOf({ vmap: { key, data: '@map' } })).toEqual([{ matches: ['unknown'], verdict: { kind: 'either' } }])
})

test('goal: rules of iptables in nftables mark their chain; a target that drops is seen', () => {
  const [read] = parseNftRules(
    listOf(
      { chain },
      {
        rule: {
          family: 'inet',
          table: 'fw',
          chain: 'f',
          expr: [{ xt: { type: 'match', name: 'conntrack' } }, { xt: { type: 'target', name: 'REJECT' } }],
        },
      },
    ),
  )
  expect([read?.isOpaque, read?.rules]).toEqual([true, [{ matches: ['unknown'], verdict: { kind: 'drop' } }]])
  expect(rulesOf({ xt: null }, { accept: null })).toEqual([{ matches: ['unknown'], verdict: { kind: 'accept' } }])
})

test('goal: what is no list of nft is refused, and says so', () => {
  for (const text of ['', '{', '[]', '{"nftables": 1}', '{"nftables": [{"chain": {"family": 1}}]}']) {
    expect(() => parseNftRules(text)).toThrow('nft list ruleset')
  }
  expect(parseNftRules('{"nftables": []}')).toEqual([])
})

test('goal: addresses of IPv6 are read, and say which family they are of', () => {
  const right = { prefix: { addr: 'fd00::', len: 8 } }
  const [family, network] = matchesOf({ payload: { protocol: 'ip6', field: 'daddr' } }, right) ?? []
  expect(family).toEqual({ field: 'family', isNegated: false, values: [{ kind: 'text', text: 'ipv6' }] })
  expect(network).toEqual({
    field: 'daddr',
    isNegated: false,
    values: [{ kind: 'network', network: rangeOfV6('fd00::/8') }],
  })
  expect(matchesOf({ meta: { key: 'protocol' } }, 'ip6')).toEqual([
    { field: 'family', isNegated: false, values: [{ kind: 'text', text: 'ipv6' }] },
  ])
})
