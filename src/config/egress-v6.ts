// Where instances may send to by IPv6, and as whom: what entries of `network.egress` mean. Pure.

import { isIPv6 } from 'node:net'
import { canonicalNetworkV6, coversV6, formatIpv6, type Ipv6Range, parseIpv6, rangeOfV6 } from '../base/ipv6.ts'

export const egressAllowedV6 =
  'or an IPv6 address or network ADDRESS/N, in brackets where ports follow, as in "[2001:db8::/48]:443"'

/** `kind` of `masquerade`: the address of the interface. `pool`: the instance's own. */
export type EgressSourceV6 =
  | { readonly kind: 'masquerade' }
  | { readonly kind: 'pool' }
  | { readonly kind: 'snat'; readonly to: string }

export function egressSourceV6(source: string): EgressSourceV6 {
  if (source === 'masquerade' || source === 'pool') return { kind: source }
  return { kind: 'snat', to: formatIpv6(parseIpv6(source)) }
}

export type EgressEntryV6 = Ipv6Range & {
  /** TCP and UDP; null means every port and protocol. */
  readonly ports: { readonly first: number; readonly last: number } | null
}

/** Null for any other form. */
export function parseEgressEntryV6(text: string): EgressEntryV6 | null {
  const match =
    /^(?:\[([0-9a-f:]+(?:\/[0-9]{1,3})?)\]:([0-9]{1,5})(?:-([0-9]{1,5}))?|([0-9a-f:]+(?:\/[0-9]{1,3})?))$/.exec(text)
  if (match === null) return null
  const [, bracketed, from, to = from, plain] = match
  const network = bracketed ?? plain ?? ''
  if (!isNetworkV6(network)) return null
  if (from === undefined) return { ...rangeOfV6(network), ports: null }
  const ports = { first: Number(from), last: Number(to) }
  return ports.first >= 1 && ports.first <= ports.last && ports.last <= 65_535 ? { ...rangeOfV6(network), ports } : null
}

/** An address or a network, in hexadecimal. */
export function isNetworkV6(text: string): boolean {
  const [address = '', length, ...rest] = text.split('/')
  return (
    rest.length === 0 &&
    isHexIpv6(address) &&
    (length === undefined || (/^(0|[1-9][0-9]{0,2})$/.test(length) && Number(length) <= 128))
  )
}

/** Without an IPv4 part and without a zone. */
export function isHexIpv6(text: string): boolean {
  return isIPv6(text) && /^[0-9a-f:]+$/.test(text)
}

/** Unrouted addresses: unspecified, loopback, IPv4-compatible and mapped (RFC 4291 2.5), link-local, multicast. */
export const NEVER_FORWARDED_V6 = ['::/96', '::ffff:0:0/96', 'fe80::/10', 'ff00::/8'] as const

/** Null if it is valid. `text` is an entry. */
export function entryProblemV6(text: string, pool: string | null): string | null {
  const entry = parseEgressEntryV6(text)
  if (entry === null) return null
  const network = /^\[?([^\]]*)/.exec(text)?.[1] ?? ''
  const canonical = network.includes('/') ? canonicalNetworkV6(network) : formatIpv6(parseIpv6(network))
  if (canonical !== network) return `${text} is not in its short form; write ${text.replace(network, canonical)}`
  if (pool !== null && coversV6(rangeOfV6(pool), entry))
    return `${text} is in pool_v6 (${pool}): instances never reach each other`
  if (NEVER_FORWARDED_V6.some(closed => coversV6(rangeOfV6(closed), entry)))
    return `${text} is nothing that a host can reach`
  return null
}

/** Null if it is valid. */
export function sourceProblemV6(
  text: string,
  { pool, nextHop }: { pool: string | null; nextHop: string },
): string | null {
  if (text === 'masquerade' || text === 'pool') return null
  if (!isHexIpv6(text))
    return `${JSON.stringify(text)} is not allowed; allowed: "masquerade", "pool" or an IPv6 address`
  const address = rangeOfV6(text)
  if (NEVER_FORWARDED_V6.some(closed => coversV6(rangeOfV6(closed), address)))
    return `${text} is not an address that a host can have`
  if (pool !== null && coversV6(rangeOfV6(pool), address))
    return `${text} is in pool_v6 (${pool}), whose addresses instances get; use "pool" for their own`
  if (parseIpv6(text) === parseIpv6(nextHop))
    return `${text} is gateway_v6, which instances alone can reach: no answer would come back`
  return null
}
