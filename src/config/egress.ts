// Where instances may send to: the table `network.egress` of the configuration, and what its entries mean. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { canonicalNetwork, containsRange, type Ipv4Range, rangeOf } from '../base/ipv4.ts'
import { egressAllowedV6, entryProblemV6, parseEgressEntryV6, sourceProblemV6 } from './egress-v6.ts'
import { Count, ipv4Pattern, Section } from './fields.ts'

export const egressAllowed = `an IPv4 address or network A.B.C.D/N; :PORT or :FIRST-LAST may follow, for these TCP and UDP ports alone; ${egressAllowedV6}`

/** Instead of an address: what the source of packets that leave is to be. */
const SOURCES = ['masquerade', 'pool'] as const
/** `kind` of `masquerade`: the address of the interface. `pool`: the instance's own. */
export type EgressSource = { readonly kind: (typeof SOURCES)[number] } | { readonly kind: 'snat'; readonly to: string }

export const EgressConfig = Section({
  allow: Type.Array(Type.String({ minLength: 1, maxLength: 64, allowed: egressAllowed }), {
    default: [],
    maxItems: 128,
    description:
      'What instances may reach although it is denied by default: private networks (RFC 1918, 100.64.0.0/10, 169.254.0.0/16), the networks that this host is in, and TCP port 25 everywhere; "0.0.0.0/0:25" and "[::/0]:25" open the latter. Of IPv6, all that is not given out for the world is denied (what is not in 2000::/3), and of that documentation, 6to4 and Teredo; of NAT64 (64:ff9b::/96) the IPv4 addresses that are denied. Other instances, ports of this host besides the gateway, multicast and 240.0.0.0/4 stay closed whatever stands here. The `resolvers` are open at port 53 without an entry.',
  }),
  source: Type.String({
    default: 'masquerade',
    pattern: `^(${SOURCES.join('|')})$|${ipv4Pattern}$`,
    allowed: '"masquerade", "pool" or an IPv4 address',
    description:
      'Source address of what instances send to the world. "masquerade": that of the interface by which it leaves. An address: this one, which must be of this host or routed to it, so that what instances do is not taken for what this host does. "pool": the own address of each instance, where `pool_v4` is routed to this host.',
  }),
  source_v6: Type.String({
    default: 'pool',
    pattern: `^(${SOURCES.join('|')})$|^[0-9a-f:]{2,39}$`,
    allowed: '"masquerade", "pool" or an IPv6 address',
    description:
      'The same of IPv6. "pool" is right where `pool_v6` is routed to this host from the world; a private one (fc00::/7) needs another.',
  }),
  /** No share: limits each VM. */
  new_flows_per_s_max: Count(
    [250, 1, 100_000],
    'How many connections and other flows one VM may begin per second; four times as many in a burst. What is over it is dropped.',
  ),
  /** No share: limits each VM. */
  flows_max: Count(
    [2048, 1, 1_000_000],
    'How many flows one VM may have at a time that it began. All VMs share the connection table of this host (net.netfilter.nf_conntrack_max).',
  ),
})
export type EgressConfig = Static<typeof EgressConfig>

export type EgressEntry = Ipv4Range & {
  /** TCP and UDP; null means every port and protocol. */
  readonly ports: { readonly first: number; readonly last: number } | null
}

/** Null for any other form. */
export function parseEgressEntry(text: string): EgressEntry | null {
  const match = entryPattern.exec(text)
  if (match === null) return null
  const [, network = '', from, to = from] = match
  if (from === undefined) return { ...rangeOf(network), ports: null }
  const ports = { first: Number(from), last: Number(to) }
  return ports.first >= 1 && ports.first <= ports.last && ports.last <= 65_535 ? { ...rangeOf(network), ports } : null
}

const byte = '(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])'
const entryPattern = new RegExp(
  `^(${byte}(?:\\.${byte}){3}(?:/(?:[0-9]|[12][0-9]|3[0-2]))?)(?::([0-9]{1,5})(?:-([0-9]{1,5}))?)?$`,
)

export function egressSource(source: EgressConfig['source']): EgressSource {
  if (source === 'masquerade' || source === 'pool') return { kind: source }
  return { kind: 'snat', to: source }
}

/** "This network", loopback, multicast and reserved (RFC 6890): nothing that a router forwards. */
export const NEVER_FORWARDED = ['0.0.0.0/8', '127.0.0.0/8', '224.0.0.0/3'] as const

type Problem = { readonly field: string; readonly message: string }
type Around = {
  readonly pool_v4: string
  readonly pool_v6: string
  readonly gateway_v4: string
  readonly gateway_v6: string
  readonly egress: EgressConfig
}

export function egressProblems({ egress, ...network }: Around): Problem[] {
  const pool = network.pool_v4 || null
  const v6 = { pool: network.pool_v6 || null, nextHop: network.gateway_v6 }
  const sourceV6 = sourceProblemV6(egress.source_v6, v6)
  return [
    ...egress.allow.flatMap((text, index) => {
      const message = parseEgressEntryV6(text) === null ? entryProblem(text, pool) : entryProblemV6(text, v6.pool)
      return message === null ? [] : [{ field: `network.egress.allow.${index}`, message }]
    }),
    ...sourceProblems(egress.source, { pool, nextHop: network.gateway_v4 }),
    ...(sourceV6 === null ? [] : [{ field: 'network.egress.source_v6', message: sourceV6 }]),
  ]
}

function entryProblem(text: string, pool: string | null): string | null {
  const entry = parseEgressEntry(text)
  if (entry === null) return `${JSON.stringify(text)} is not allowed; allowed: ${egressAllowed}`
  const [network = '', ...ports] = text.split(':')
  const canonical = network.includes('/') ? canonicalNetwork(network) : network
  if (canonical !== network) return `${text} has bits set after its prefix; write ${[canonical, ...ports].join(':')}`
  if (pool !== null && containsRange(rangeOf(pool), entry))
    return `${text} is in pool_v4 (${pool}): instances never reach each other`
  if (NEVER_FORWARDED.some(closed => containsRange(rangeOf(closed), entry)))
    return `${text} is nothing that a host can reach`
  return null
}

function sourceProblems(text: string, { pool, nextHop }: { readonly pool: string | null; readonly nextHop: string }) {
  const field = 'network.egress.source'
  const source = egressSource(text)
  if (source.kind !== 'snat') return []
  const address = rangeOf(source.to)
  const problem = (message: string): Problem[] => [{ field, message }]
  if (NEVER_FORWARDED.some(closed => containsRange(rangeOf(closed), address)))
    return problem(`${source.to} is not an address that a host can have`)
  if (pool !== null && containsRange(rangeOf(pool), address))
    return problem(`${source.to} is in pool_v4 (${pool}), whose addresses instances get; use "pool" for their own`)
  if (source.to === nextHop)
    return problem(`${source.to} is gateway_v4, which instances alone can reach: no answer would come back`)
  return []
}
