// Chains and rules out of `nft --json --terse list ruleset` (libnftables-json(5)). Pure. An expression that is not
// understood becomes an unknown match.

import { type Static, Type } from '@sinclair/typebox'
import { wrapFault } from '../../base/fault.ts'
import type { Turns } from '../../base/work/turns.ts'
import { checked } from '../../contract/check.ts'
import {
  allOrNull,
  type Chain,
  chainName,
  type Field,
  type Hook,
  type Match,
  parseNetwork,
  type Rule,
  type Value,
  type Verdict,
} from './trace.plan.ts'

const Named = { family: Type.String(), table: Type.String() }
const Item = Type.Object({
  chain: Type.Optional(
    Type.Object({
      ...Named,
      name: Type.String(),
      type: Type.Optional(Type.String()),
      hook: Type.Optional(Type.String()),
      policy: Type.Optional(Type.String()),
    }),
  ),
  rule: Type.Optional(
    Type.Object({
      ...Named,
      chain: Type.String(),
      expr: Type.Optional(Type.Array(Type.Record(Type.String(), Type.Unknown()))),
    }),
  ),
})
const Ruleset = Type.Object({ nftables: Type.Array(Type.Unknown()) })
type Expression = Readonly<Record<string, unknown>>

/** Items per turn. */
const turnItems = 100

/** Chains of the tables that IPv4 and IPv6 packets traverse. Fault host.command_failed: not such a list. */
export function* readNftRules(text: string): Turns<Chain[]> {
  const chains: Omit<Chain, 'rules' | 'isOpaque'>[] = []
  const rules = new Map<string, { readonly rules: Rule[]; isOpaque: boolean }>()
  for (const [index, item] of readList(text).entries()) {
    if (index % turnItems === turnItems - 1) yield
    const { chain, rule } = checked(Item, item, { what, code: 'host.command_failed' })
    if (chain !== undefined && FAMILIES.has(chain.family)) {
      const { family, table, name } = chain
      chains.push({ family, table, name, base: baseOf(chain) })
    }
    if (rule === undefined) continue
    const own = rules.getOrInsert(`${rule.family} ${rule.table} ${rule.chain}`, { rules: [], isOpaque: false })
    const expressions = rule.expr ?? []
    own.rules.push(...rulesOf(expressions))
    own.isOpaque ||= expressions.some(expression => 'xt' in expression)
  }
  return chains.map(chain => ({ ...chain, ...(rules.get(chainName(chain)) ?? { rules: [], isOpaque: false }) }))
}

const FAMILIES: ReadonlySet<string> = new Set(['ip', 'ip6', 'inet'])

const what = 'nft list ruleset'

function readList(text: string): readonly unknown[] {
  let list: unknown
  try {
    list = JSON.parse(text)
  } catch (error) {
    throw wrapFault(error, what, 'host.command_failed')
  }
  return checked(Ruleset, list, { what, code: 'host.command_failed' }).nftables
}

const HOOKS: ReadonlySet<string> = new Set<Hook>(['prerouting', 'input', 'forward', 'postrouting'])

function baseOf({ type, hook, policy }: NonNullable<Static<typeof Item>['chain']>): Chain['base'] {
  if (type !== 'filter' || hook === undefined || !HOOKS.has(hook)) return null
  return { hook: hook as Hook, policy: policy === 'drop' ? 'drop' : 'accept' }
}

/** Statements that neither match nor decide, unless a rate or quota hangs on them (`add @set { ip saddr limit … }`). */
const SILENT: ReadonlySet<string> = new Set(
  'continue,counter,log,mangle,comment,notrack,set,map,ct helper,dup,last,flow,meter,secmark'.split(','),
)

/** A rule with a verdict map becomes one rule for each verdict of the map. */
function rulesOf(expressions: readonly Expression[]): Rule[] {
  const matches: Match[] = []
  for (const expression of expressions) {
    const [name = '', value] = Object.entries(expression)[0] ?? []
    if (SILENT.has(name) && member(value, 'stmt') === undefined) continue
    if (name === 'vmap') return vmapRules(value, matches)
    const verdict = verdictOf(expression)
    if (verdict !== null) return [{ matches, verdict }]
    matches.push(...(name === 'match' ? matchOf(value) : (['unknown'] as const)))
  }
  return [{ matches, verdict: null }]
}

function member(value: unknown, name: string): unknown {
  return Reflect.get(Object(value), name)
}

/** Null: the expression is a match or decides nothing. */
function verdictOf(expression: Expression): Verdict | null {
  const [name = '', value] = Object.entries(expression)[0] ?? []
  switch (name) {
    case 'accept':
    case 'drop':
    case 'return':
      return { kind: name }
    case 'reject':
      return { kind: 'drop' }
    case 'queue':
    case 'tproxy':
    case 'synproxy':
      return { kind: 'either' }
    case 'jump':
    case 'goto':
      return { kind: name, target: String(member(value, 'target')) }
    case 'xt': {
      const isDrop = member(value, 'name') === 'REJECT' || member(value, 'name') === 'DROP'
      return isDrop && member(value, 'type') === 'target' ? { kind: 'drop' } : null
    }
    default:
      return null
  }
}

function vmapRules(value: unknown, matches: readonly Match[]): Rule[] {
  const pairs = member(member(value, 'data'), 'set')
  // A named map, whose elements are not listed.
  if (!Array.isArray(pairs)) return [{ matches: [...matches, 'unknown'], verdict: { kind: 'either' } }]
  return pairs.flatMap((pair: unknown): Rule[] => {
    const [right, expression] = Array.isArray(pair) ? pair : []
    const verdict = verdictOf(Object(expression))
    if (verdict === null) return []
    return [{ matches: [...matches, ...matchOf({ op: '==', left: member(value, 'key'), right })], verdict }]
  })
}

function matchOf(value: unknown): Match[] {
  const { op, left, right } = Object(value) as { op?: unknown; left?: unknown; right?: unknown }
  const field = op === '==' || op === '!=' || op === 'in' ? fieldOf(left) : null
  const values = field === null ? null : valuesOf(field, right)
  const implied = impliedBy(member(member(left, 'payload'), 'protocol'))
  return [...implied, values === null || field === null ? 'unknown' : { field, isNegated: op === '!=', values }]
}

/** `tcp dport 22` matches the protocol as well as the port. */
function impliedBy(protocol: unknown): Match[] {
  const is = (field: Field, text: string): Match[] => [{ field, isNegated: false, values: [{ kind: 'text', text }] }]
  if (protocol === 'ip6' || protocol === 'icmpv6') return is('family', 'ipv6')
  if (protocol === 'ip') return is('family', 'ipv4')
  return TRANSPORTS.has(String(protocol)) ? is('protocol', String(protocol)) : []
}

const TRANSPORTS = new Set(['tcp', 'udp', 'icmp', 'igmp', 'esp', 'ah', 'comp', 'udplite', 'dccp', 'sctp', 'gre'])

/** Expressions of nftables by field. Needed packets have no IPv6 extension headers, so `nexthdr` is the protocol. */
const EXPRESSIONS = {
  family: ['meta nfproto', 'meta protocol'],
  iifname: ['meta iifname', 'meta iif'],
  oifname: ['meta oifname', 'meta oif'],
  saddr: ['ip saddr', 'ip6 saddr'],
  daddr: ['ip daddr', 'ip6 daddr'],
  protocol: ['meta l4proto', 'ip protocol', 'ip6 nexthdr'],
  sport: ['tcp sport', 'udp sport', 'th sport'],
  dport: ['tcp dport', 'udp dport', 'th dport'],
  ct_state: ['ct state'],
  ct_status: ['ct status'],
} as const satisfies Record<Field, readonly string[]>
const FIELDS: ReadonlyMap<string, Field> = new Map(
  Object.entries(EXPRESSIONS).flatMap(([field, texts]) => texts.map(text => [text, field as Field])),
)

function fieldOf(left: unknown): Field | null {
  const { meta, ct, payload } = Object(left) as { meta?: unknown; ct?: unknown; payload?: unknown }
  const [kind, name] =
    payload === undefined
      ? [meta === undefined ? 'ct' : 'meta', member(meta ?? ct, 'key')]
      : [member(payload, 'protocol'), member(payload, 'field')]
  return FIELDS.get(`${kind} ${name}`) ?? null
}

/** Null: one of them is not understood. */
function valuesOf(field: Field, right: unknown): Value[] | null {
  const inner = member(right, 'set')
  const list: readonly unknown[] = Array.isArray(inner) ? inner : Array.isArray(right) ? right : [right]
  return allOrNull(list.map(item => readValue(field, item)))
}

function readValue(field: Field, right: unknown): Value | null {
  if (field === 'saddr' || field === 'daddr') {
    const prefix = member(right, 'prefix')
    const network = parseNetwork(
      typeof right === 'string' ? right : `${member(prefix, 'addr')}/${member(prefix, 'len')}`,
    )
    return network === null ? null : { kind: 'network', network }
  }
  if (field === 'sport' || field === 'dport') {
    const range = member(right, 'range')
    const [from, to] = Array.isArray(range) ? range : [right, right]
    return typeof from === 'number' && typeof to === 'number' ? { kind: 'range', from, to } : null
  }
  if (typeof right !== 'string' || right.startsWith('@')) return null
  if (field.endsWith('ifname') && right.endsWith('*')) return { kind: 'prefix', text: right.slice(0, -1) }
  // Other bits of the status are not modelled.
  if (field === 'ct_status' && right !== 'dnat') return null
  // `meta protocol ip` means `meta nfproto ipv4`.
  return { kind: 'text', text: field === 'family' ? right.replace(/^ip(6?)$/, (_, six) => `ipv${six || 4}`) : right }
}
