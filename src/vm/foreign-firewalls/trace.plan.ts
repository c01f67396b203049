// Follows one packet through the rules of a firewall. Pure.
//
// A match is `yes`, `no` or `unknown`: sets, rates and helpers of iptables are not evaluated. Where a match is unknown
// both branches are followed. A packet is dropped for certain if every branch drops it.

import { isIP } from 'node:net'
import { assert } from '../../base/assert.ts'
import { type Ipv4Range, rangeOf } from '../../base/ipv4.ts'
import { type Ipv6Range, rangeOfV6 } from '../../base/ipv6.ts'

/** Netfilter hooks in the words of nftables. */
export type Hook = 'prerouting' | 'input' | 'forward' | 'postrouting'

/** Numbers are IPv4, bigints IPv6. */
export type Network = Ipv4Range | Ipv6Range

export type Value =
  | { readonly kind: 'text'; readonly text: string }
  /** An interface name that ended with a wildcard. */
  | { readonly kind: 'prefix'; readonly text: string }
  | { readonly kind: 'network'; readonly network: Network }
  | { readonly kind: 'range'; readonly from: number; readonly to: number }

export type Field = Exclude<keyof Packet, 'name'>

/** Holds if the field has one of `values`; negated, if it has none of them. */
export type Match =
  | 'unknown'
  | { readonly field: Field; readonly isNegated: boolean; readonly values: readonly Value[] }

export type Verdict =
  /** `either`: accept, drop or return; the rules do not tell. */
  | { readonly kind: 'accept' | 'drop' | 'return' | 'either' }
  | { readonly kind: 'jump' | 'goto'; readonly target: string }

export type Rule = {
  readonly matches: readonly Match[]
  /** Null: the rule only counts, logs or marks. */
  readonly verdict: Verdict | null
}

export type Chain = {
  readonly family: string
  readonly table: string
  readonly name: string
  /** Null: reached by jumps only. */
  readonly base: { readonly hook: Hook; readonly policy: 'accept' | 'drop' } | null
  readonly rules: readonly Rule[]
  /** Holds rules of iptables, of which nft lists no matches. */
  readonly isOpaque?: boolean
}

/** A packet at a hook. Null: any value. */
export type Packet = {
  /** Shown to the operator. */
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
  /** `dnat`: the destination of its connection was translated. */
  readonly ct_status: 'dnat' | 'none'
}

export const anywhere: Ipv4Range = rangeOf('0.0.0.0/0')
export const anywhereV6: Ipv6Range = rangeOfV6('::/0')

/** Whether a packet's family traverses the chain's table. `legacy` and `legacy6` are iptables' older tables. */
export function passesBy(chain: Pick<Chain, 'family'>, { family }: Pick<Packet, 'family'>): boolean {
  return chain.family === 'inet' || (chain.family === 'ip6' || chain.family === 'legacy6') === (family === 'ipv6')
}

/** Result of a base chain. `unsure`: an unknown match decides. */
export type Fate = 'passes' | 'drops' | 'unsure'

/** `cause`: the first rule or policy that may drop the packet, as text. Null: none does. */
export type Traced = { readonly fate: Fate; readonly cause: string | null }

type End = 'accept' | 'drop' | 'fall'
type Walked = { readonly ends: ReadonlySet<End>; readonly cause: string | null }

/** Follows a packet through a base chain and the chains of its table that it jumps to. */
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
export function chainName({ family, table, name }: Pick<Chain, 'family' | 'table' | 'name'>): string {
  return `${family} ${table} ${name}`
}

const depthMax = 64
const unknownChain: Walked = { ends: new Set(['accept', 'drop', 'fall']), cause: null }

class Walk {
  readonly #chains: ReadonlyMap<string, Chain>
  readonly #packet: Packet
  /** Results by chain. A chain does the same with the packet wherever the jump came from. */
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
    // The kernel allows 16 jumps and no cycles (include/net/netfilter/nf_tables.h, NFT_JUMP_STACK_SIZE).
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
    // `return` continues in the calling chain; in a base chain its policy applies.
    return { ends: new Set([verdict.kind === 'return' ? 'fall' : verdict.kind]), cause: null }
  }
}

type Truth = 'yes' | 'no' | 'unknown'

function matches(rule: Rule, packet: Packet): Truth {
  const each = rule.matches.map(match => (match === 'unknown' ? 'unknown' : holds(match, packet)))
  return each.includes('no') ? 'no' : each.includes('unknown') ? 'unknown' : 'yes'
}

function holds({ field, isNegated, values }: Exclude<Match, 'unknown'>, packet: Packet): Truth {
  const each = values.map(value => equals(packet[field], value))
  if (each.includes('yes')) return isNegated ? 'no' : 'yes'
  if (each.includes('unknown')) return 'unknown'
  return isNegated ? 'yes' : 'no'
}

function equals(found: Packet[Field], value: Value): Truth {
  if (typeof found === 'string') {
    if (value.kind === 'text') return found === value.text ? 'yes' : 'no'
    if (value.kind === 'prefix') return found.startsWith(value.text) ? 'yes' : 'no'
  } else if (typeof found === 'number') {
    if (value.kind === 'range') return found >= value.from && found <= value.to ? 'yes' : 'no'
  } else if (found !== null && value.kind === 'network') return within(found, value.network)
  return 'unknown'
}

function within(inner: Network, outer: Network): Truth {
  if (typeof inner.first !== typeof outer.first) return 'no'
  if (outer.first <= inner.first && inner.last <= outer.last) return 'yes'
  return inner.last < outer.first || outer.last < inner.first ? 'no' : 'unknown'
}

/** Reads `ADDRESS` or `ADDRESS/LENGTH`, IPv6 in hexadecimal without a zone. Null: the text is neither. */
export function parseNetwork(text: string): Network | null {
  const [address = '', length, ...more] = text.split('/')
  const bits = { 4: 32, 6: /^[0-9a-f:]+$/.test(address) ? 128 : -1 }[isIP(address)] ?? -1
  const isLength = length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= bits)
  if (bits < 0 || !isLength || more.length > 0) return null
  return bits === 32 ? rangeOf(text) : rangeOfV6(text)
}

export function allOrNull(values: readonly (Value | null)[]): Value[] | null {
  const read = values.filter(value => value !== null)
  return read.length === values.length ? read : null
}
