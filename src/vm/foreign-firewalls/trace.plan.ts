// What a firewall does with one packet, as far as its rules tell. Pure.
//
// Every match is `yes`, `no` or `unknown`: nobody evaluates a set that somebody fills, a rate, or a helper of iptables. Where a rule may match or
// not, both ways are followed. What is dropped in every way is dropped for certain.

import { isIPv4, isIPv6 } from 'node:net'
import { assert } from '../../base/assert.ts'
import { covers, type Ipv4Range, rangeOf } from '../../base/ipv4.ts'
import { coversV6, type Ipv6Range, rangeOfV6 } from '../../base/ipv6.ts'

/** Of packets of either family, in nftables' words. */
export type Hook = 'prerouting' | 'input' | 'forward' | 'postrouting'

/** Of either family: numbers are IPv4. */
export type Network = Ipv4Range | Ipv6Range

export type Value =
  | { readonly kind: 'text'; readonly text: string }
  /** The beginning of an interface's name. */
  | { readonly kind: 'prefix'; readonly text: string }
  | { readonly kind: 'network'; readonly network: Network }
  | { readonly kind: 'range'; readonly from: number; readonly to: number }

export type Field = Exclude<keyof Packet, 'name'>

/** One of `values`; or, negated, none of them. */
export type Match =
  | 'unknown'
  | { readonly field: Field; readonly isNegated: boolean; readonly values: readonly Value[] }

export type Verdict =
  /** `either`: it depends on what is not known here. */
  | { readonly kind: 'accept' | 'drop' | 'return' | 'either' }
  | { readonly kind: 'jump' | 'goto'; readonly target: string }

export type Rule = {
  readonly matches: readonly Match[]
  /** Null: it decides nothing. */
  readonly verdict: Verdict | null
}

export type Chain = {
  readonly family: string
  readonly table: string
  readonly name: string
  /** Null: others jump to it. */
  readonly base: { readonly hook: Hook; readonly policy: 'accept' | 'drop' } | null
  readonly rules: readonly Rule[]
  /** Whose rules of iptables are not all told. */
  readonly isOpaque?: boolean
}

/** A packet on its way; null: any. */
export type Packet = {
  /** For people. */
  readonly name: string
  readonly family: 'ipv4' | 'ipv6'
  readonly iifname: string | null
  readonly oifname: string | null
  readonly saddr: Network
  readonly daddr: Network
  readonly protocol: 'tcp' | 'udp'
  readonly sport: number | null
  readonly dport: number | null
  readonly ct_state: 'new' | 'established'
  /** Whether its connection is led elsewhere than where it was sent. */
  readonly ct_status: 'dnat' | 'none'
}

export const anywhere: Ipv4Range = rangeOf('0.0.0.0/0')
export const anywhereV6: Ipv6Range = rangeOfV6('::/0')

/** Whether packets of one family come by the chains of a table: those of the older tables are named after their programs. */
export function passesBy(chain: Pick<Chain, 'family'>, { family }: Pick<Packet, 'family'>): boolean {
  return chain.family === 'inet' || (chain.family === 'ip6' || chain.family === 'legacy6') === (family === 'ipv6')
}

/** What a base chain does with a packet. `unsure`: what is not known here decides. */
export type Fate = 'passes' | 'drops' | 'unsure'

/** `cause`: the first thing that drops it, for people; null: nothing does. */
export type Traced = { readonly fate: Fate; readonly cause: string | null }

type End = 'accept' | 'drop' | 'fall'
type Walked = { readonly ends: ReadonlySet<End>; readonly cause: string | null }

/** Follows a packet through a base chain and all that it jumps to within its table. */
export function trace(base: Chain, chains: readonly Chain[], packet: Packet): Traced {
  assert(base.base !== null, 'a packet begins at a base chain')
  const table = chains.filter(({ family, table }) => family === base.family && table === base.table)
  const { ends, cause } = new Walk(new Map(table.map(chain => [chain.name, chain])), packet).through(base.name)
  const policyDrops = base.base.policy === 'drop'
  const mayDrop = ends.has('drop') || (ends.has('fall') && policyDrops)
  const mayPass = ends.has('accept') || (ends.has('fall') && !policyDrops)
  const why = cause ?? (mayDrop ? `policy drop of ${chainName(base)}` : null)
  return { fate: mayDrop ? (mayPass ? 'unsure' : 'drops') : 'passes', cause: mayDrop ? why : null }
}

/** `ip filter FORWARD` */
export function chainName({ family, table, name }: Chain): string {
  return `${family} ${table} ${name}`
}

const depthMax = 64
const unknownChain: Walked = { ends: new Set(['accept', 'drop', 'fall']), cause: null }

class Walk {
  readonly #chains: ReadonlyMap<string, Chain>
  readonly #packet: Packet
  /** The packet is the same wherever it comes from, so each chain is walked once. */
  readonly #walked = new Map<string, Walked>()
  #depth = 0

  constructor(chains: ReadonlyMap<string, Chain>, packet: Packet) {
    this.#chains = chains
    this.#packet = packet
  }

  through(name: string): Walked {
    const known = this.#walked.get(name)
    if (known !== undefined) return known
    const chain = this.#chains.get(name)
    // The kernel allows 16 (include/net/netfilter/nf_tables.h, NFT_JUMP_STACK_SIZE), and no circles.
    if (chain === undefined || this.#depth >= depthMax) return unknownChain
    this.#depth += 1
    const walked = this.#rules(chain)
    this.#depth -= 1
    this.#walked.set(name, walked)
    return walked
  }

  #rules(chain: Chain): Walked {
    const ends = new Set<End>()
    let cause: string | null = null
    for (const [index, rule] of chain.rules.entries()) {
      if (rule.verdict === null) continue
      const matched = matches(rule, this.#packet)
      if (matched === 'no') continue
      const { verdict } = rule
      const led = this.#ledBy(verdict)
      for (const end of led.ends) if (end !== 'fall') ends.add(end)
      if (led.ends.has('drop')) cause ??= led.cause ?? `rule ${index + 1} of ${chainName(chain)}`
      const goesOn = verdict.kind === 'jump' && led.ends.has('fall')
      if (matched === 'unknown' || goesOn) continue
      if (led.ends.has('fall')) ends.add('fall')
      return { ends, cause }
    }
    ends.add('fall')
    return { ends, cause }
  }

  #ledBy(verdict: Verdict): Walked {
    if (verdict.kind === 'jump' || verdict.kind === 'goto') return this.through(verdict.target)
    if (verdict.kind === 'either') return unknownChain
    // `return` goes on where the chain was jumped to from, and at a base chain with its policy.
    return { ends: new Set([verdict.kind === 'return' ? 'fall' : verdict.kind]), cause: null }
  }
}

type Truth = 'yes' | 'no' | 'unknown'

function matches(rule: Rule, packet: Packet): Truth {
  let truth: Truth = 'yes'
  for (const match of rule.matches) {
    const item = match === 'unknown' ? 'unknown' : holds(match, packet)
    if (item === 'no') return 'no'
    if (item === 'unknown') truth = 'unknown'
  }
  return truth
}

function holds({ field, isNegated, values }: Exclude<Match, 'unknown'>, packet: Packet): Truth {
  const each = values.map(value => equals(field, value, packet))
  const any: Truth = each.includes('yes') ? 'yes' : each.includes('unknown') ? 'unknown' : 'no'
  if (!isNegated || any === 'unknown') return any
  return any === 'yes' ? 'no' : 'yes'
}

function equals(field: Field, value: Value, packet: Packet): Truth {
  const found = packet[field]
  if (found === null) return 'unknown'
  if (typeof found === 'string') {
    if (value.kind === 'text') return truth(found === value.text)
    return value.kind === 'prefix' ? truth(found.startsWith(value.text)) : 'unknown'
  }
  if (typeof found === 'number')
    return value.kind === 'range' ? truth(found >= value.from && found <= value.to) : 'unknown'
  return value.kind === 'network' ? within(found, value.network) : 'unknown'
}

function truth(is: boolean): Truth {
  return is ? 'yes' : 'no'
}

function within(inner: Network, outer: Network): Truth {
  if (isV6(inner)) return isV6(outer) ? lies(coversV6(outer, inner), inner, outer) : 'no'
  return isV6(outer) ? 'no' : lies(covers(outer, inner), inner, outer)
}

function lies(isInside: boolean, inner: Network, outer: Network): Truth {
  if (isInside) return 'yes'
  return inner.last < outer.first || outer.last < inner.first ? 'no' : 'unknown'
}

function isV6(network: Network): network is Ipv6Range {
  return typeof network.first === 'bigint'
}

/** `A.B.C.D` or `A.B.C.D/N`, or the same of IPv6, in hexadecimal; null for anything else. */
export function parseNetwork(text: string): Network | null {
  if (text.includes(':')) return parseNetworkV6(text)
  const [address = '', length = '32', ...more] = text.split('/')
  return isIPv4(address) && /^\d{1,2}$/.test(length) && Number(length) <= 32 && more.length === 0 ? rangeOf(text) : null
}

function parseNetworkV6(text: string): Ipv6Range | null {
  const [address = '', length = '128', ...more] = text.split('/')
  const isAddress = isIPv6(address) && /^[0-9a-f:]+$/.test(address)
  return isAddress && /^\d{1,3}$/.test(length) && Number(length) <= 128 && more.length === 0 ? rangeOfV6(text) : null
}
