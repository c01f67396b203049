// Chains and rules out of `nft --json --terse list ruleset` (libnftables-json(5)). Pure. What is not known here is an unknown match, never none.

import { type Static, Type } from '@sinclair/typebox'
import { wrapFault } from '../../base/fault.ts'
import type { Turns } from '../../base/work/turns.ts'
import { checked } from '../../contract/shape.ts'
import {
  type Chain,
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

/** Items that are read in one turn. */
const turnItems = 100

/** Chains that packets of IPv4 and IPv6 pass, those of every table. Fault host.command_failed: it is no such list. */
export function* readNftRules(text: string): Turns<Chain[]> {
  const chains = new Map<string, Declared>()
  const rules = new Map<string, { readonly rules: Rule[]; isOpaque: boolean }>()
  for (const [index, item] of readList(text).entries()) {
    if (index % turnItems === turnItems - 1) yield
    const { chain, rule } = checked(Item, item, { what, code: 'host.command_failed' })
    if (chain !== undefined && FAMILIES.has(chain.family)) {
      const { family, table, name } = chain
      chains.set(`${family} ${table} ${name}`, { family, table, name, base: baseOf(chain) })
    }
    if (rule === undefined) continue
    const key = `${rule.family} ${rule.table} ${rule.chain}`
    const own = rules.get(key) ?? { rules: [], isOpaque: false }
    const expressions = rule.expr ?? []
    own.rules.push(...rulesOf(expressions))
    own.isOpaque ||= expressions.some(expression => 'xt' in expression)
    rules.set(key, own)
  }
  return [...chains].map(([key, chain]) => ({ ...chain, ...(rules.get(key) ?? { rules: [], isOpaque: false }) }))
}

const FAMILIES: ReadonlySet<string> = new Set(['ip', 'ip6', 'inet'])

type Declared = Omit<Chain, 'rules' | 'isOpaque'>
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

/** Statements that neither match nor decide. */
const SILENT = new Set([
  'counter',
  'log',
  'mangle',
  'comment',
  'notrack',
  'set',
  'map',
  'ct helper',
  'dup',
  'last',
  'flow',
  'meter',
  'secmark',
])
const ENDS = new Set(['accept', 'drop', 'return'])

/** A rule with a verdict map is as many rules as the map has verdicts. */
function rulesOf(expressions: readonly Expression[]): Rule[] {
  const matches: Match[] = []
  for (const expression of expressions) {
    const [name = '', value] = Object.entries(expression)[0] ?? []
    if (SILENT.has(name) || name === 'continue') continue
    if (name === 'match') matches.push(...matchOf(value))
    else if (name === 'vmap') return vmapRules(value, matches)
    else if (name === 'xt') {
      const verdict = targetOf(value)
      if (verdict !== null) return [{ matches, verdict }]
      matches.push('unknown')
    } else {
      const verdict = verdictOf(expression)
      if (verdict !== null) return [{ matches, verdict }]
      matches.push('unknown')
    }
  }
  return [{ matches, verdict: null }]
}

function verdictOf(expression: Expression): Verdict | null {
  const [name = '', value] = Object.entries(expression)[0] ?? []
  if (ENDS.has(name)) return { kind: name as 'accept' | 'drop' | 'return' }
  if (name === 'reject') return { kind: 'drop' }
  if (name === 'queue' || name === 'tproxy' || name === 'synproxy') return { kind: 'either' }
  if (name !== 'jump' && name !== 'goto') return null
  const target = Reflect.get(Object(value), 'target')
  return { kind: name, target: String(target) }
}

/** Of iptables in nftables: a target of its own. Null: it is a match, or decides nothing. */
function targetOf(value: unknown): Verdict | null {
  const { type, name } = Object(value) as { type?: unknown; name?: unknown }
  return type === 'target' && (name === 'REJECT' || name === 'DROP') ? { kind: 'drop' } : null
}

function vmapRules(value: unknown, matches: readonly Match[]): Rule[] {
  const { key, data } = Object(value) as { key?: unknown; data?: unknown }
  const pairs = Reflect.get(Object(data), 'set')
  // A named map: what is in it is not read.
  if (!Array.isArray(pairs)) return [{ matches: [...matches, 'unknown'], verdict: { kind: 'either' } }]
  return pairs.flatMap((pair: unknown): Rule[] => {
    const [right, verdict] = Array.isArray(pair) ? pair : []
    const found = verdictOf(Object(verdict))
    return found === null ? [] : [{ matches: [...matches, ...matchOf({ op: '==', left: key, right })], verdict: found }]
  })
}

function matchOf(value: unknown): Match[] {
  const { op, left, right } = Object(value) as { op?: unknown; left?: unknown; right?: unknown }
  const field = fieldOf(Object(left))
  const isKnown = field !== null && (op === '==' || op === '!=' || op === 'in')
  const values = isKnown ? valuesOf(field, right) : null
  return [
    ...impliedBy(Object(left)),
    values === null || field === null ? 'unknown' : { field, isNegated: op === '!=', values },
  ]
}

/** `tcp dport 22` says two things: that it is TCP, and the port. */
function impliedBy({ payload }: { payload?: unknown }): Match[] {
  if (payload === undefined) return []
  const protocol = String(Reflect.get(Object(payload), 'protocol'))
  const is = (field: Field, text: string): Match[] => [{ field, isNegated: false, values: [{ kind: 'text', text }] }]
  if (protocol === 'ip6' || protocol === 'icmpv6') return is('family', 'ipv6')
  if (protocol === 'ip') return is('family', 'ipv4')
  return TRANSPORTS.has(protocol) ? is('protocol', protocol) : []
}

const TRANSPORTS = new Set(['tcp', 'udp', 'icmp', 'igmp', 'esp', 'ah', 'comp', 'udplite', 'dccp', 'sctp', 'gre'])

const META: Readonly<Record<string, Field>> = {
  iifname: 'iifname',
  iif: 'iifname',
  oifname: 'oifname',
  oif: 'oifname',
  l4proto: 'protocol',
  nfproto: 'family',
  protocol: 'family',
}
const CT: Readonly<Record<string, Field>> = { state: 'ct_state', status: 'ct_status' }
const IP: Readonly<Record<string, Field>> = { saddr: 'saddr', daddr: 'daddr', protocol: 'protocol' }
/** Our packets have no header between. */
const IP6: Readonly<Record<string, Field>> = { saddr: 'saddr', daddr: 'daddr', nexthdr: 'protocol' }
const PORTS: Readonly<Record<string, Field>> = { sport: 'sport', dport: 'dport' }

function fieldOf(left: { meta?: unknown; ct?: unknown; payload?: unknown }): Field | null {
  const text = (value: unknown, name: string) => String(Reflect.get(Object(value), name))
  if (left.meta !== undefined) return META[text(left.meta, 'key')] ?? null
  if (left.ct !== undefined) return CT[text(left.ct, 'key')] ?? null
  if (left.payload === undefined) return null
  const [protocol, field] = [text(left.payload, 'protocol'), text(left.payload, 'field')]
  if (protocol === 'ip') return IP[field] ?? null
  if (protocol === 'ip6') return IP6[field] ?? null
  return protocol === 'tcp' || protocol === 'udp' || protocol === 'th' ? (PORTS[field] ?? null) : null
}

/** Null: not all of them can be told. */
function valuesOf(field: Field, right: unknown): Value[] | null {
  const inner = Reflect.get(Object(right), 'set')
  const list = Array.isArray(inner) ? inner : Array.isArray(right) ? right : [right]
  const values = list.map(item => readValue(field, item))
  return values.some(value => value === null) ? null : (values as Value[])
}

function readValue(field: Field, right: unknown): Value | null {
  if (field === 'saddr' || field === 'daddr') {
    const { addr, len } = Object(Reflect.get(Object(right), 'prefix')) as { addr?: unknown; len?: unknown }
    const network = parseNetwork(typeof right === 'string' ? right : `${addr}/${len}`)
    return network === null ? null : { kind: 'network', network }
  }
  if (field === 'sport' || field === 'dport') {
    const range = Reflect.get(Object(right), 'range')
    const [from, to] = Array.isArray(range) ? range : [right, right]
    return typeof from === 'number' && typeof to === 'number' ? { kind: 'range', from, to } : null
  }
  if (typeof right !== 'string' || right.startsWith('@')) return null
  if ((field === 'iifname' || field === 'oifname') && right.endsWith('*'))
    return { kind: 'prefix', text: right.slice(0, -1) }
  // Other words of the status are not followed.
  if (field === 'ct_status' && right !== 'dnat') return null
  // `meta protocol ip` is what `meta nfproto ipv4` is.
  return { kind: 'text', text: field === 'family' ? (PROTOCOLS[right] ?? right) : right }
}

const PROTOCOLS: Readonly<Record<string, string>> = { ip: 'ipv4', ip6: 'ipv6' }
