// Whether DNS queries for names of instances reach this host. Pure.

import type { Config } from '../../config/schema.ts'
import { type Check, fail, pass, skip } from './check.ts'

export type DelegationFacts =
  /** No server was queried, or none answered. */
  | { readonly kind: 'none'; readonly reason: string }
  | {
      readonly kind: 'asked'
      /** The zone above the domain. */
      readonly zone: string
      /** The name server of that zone that answered. */
      readonly by: string
      readonly nameServers: readonly string[]
      /** Addresses of these, of both families. */
      readonly addresses: readonly string[]
    }

/** Names that are never delegated (RFC 2606, RFC 6761, RFC 6762, RFC 8375; ICANN reserves .internal). */
const PRIVATE = [
  'internal',
  'test',
  'example',
  'invalid',
  'localhost',
  'local',
  'onion',
  'home.arpa',
  'lan',
  'intranet',
  'corp',
  'home',
]

/** Why the domain cannot be delegated; null if it can. */
export function privateName(domain: string): string | null {
  const labels = domain.split('.')
  if (labels.length < 2) return `${domain} has no zone above it but the root`
  const found = PRIVATE.find(name => domain === name || domain.endsWith(`.${name}`))
  return found === undefined ? null : `names below .${found} cannot be delegated: clients must query this host directly`
}

/** `own`: addresses at which clients reach this host's DNS; empty means not known. */
export function delegationCheck(
  facts: DelegationFacts,
  { domain, listen }: Pick<Config, 'domain' | 'listen'>,
  own: readonly string[],
): Check {
  const name = 'delegation'
  if (listen.dns === '') return skip(name, 'listen.dns is off: another server has to name instances')
  if (facts.kind === 'none') return skip(name, facts.reason)
  const { zone, by, nameServers, addresses } = facts
  const records = own.map(address => `"ns.${domain}. ${address.includes(':') ? 'AAAA' : 'A'} ${address}"`)
  const glue = records.length === 0 ? `"ns.${domain}. A ADDRESS OF THIS HOST"` : records.join(' and ')
  const remedy = `put into the zone ${zone}: "${domain}. NS ns.${domain}." and ${glue}`
  if (nameServers.length === 0)
    return fail(name, `${by} has no name servers for ${domain}: clients cannot find instances`, remedy)
  const told = `${by} answers ${nameServers.join(', ')}`
  if (addresses.length === 0) return fail(name, `${told}, and none of them has an address`, remedy)
  if (own.length === 0) return skip(name, `${told} at ${addresses.join(', ')}; the address of this host is not known`)
  if (own.some(address => addresses.includes(address))) return pass(name, `${told} at ${addresses.join(', ')}`)
  return fail(
    name,
    `${told} at ${addresses.join(', ')}, and this host is ${own.join(', ')}`,
    `${remedy}; or correct network.${own.some(address => !address.includes(':')) ? 'public_v4' : 'public_v6'}`,
  )
}
