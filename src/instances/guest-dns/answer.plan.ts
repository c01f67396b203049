// Addresses of a name in a resolver's answer (RFC 1034 3.6.2, RFC 1035 3.2.1). Pure.

import { isIPv4, isIPv6 } from 'node:net'
import type { Answer } from 'dns-packet'
import { formatIpv6, parseIpv6 } from '../../base/ipv6.ts'

export type AddressType = 'A' | 'AAAA'

export type Addresses = {
  /** Each once, in the spelling of its family; empty: the name has none of this type. */
  readonly addresses: readonly string[]
  /** The least of all records that lead there. */
  readonly ttlSeconds: number
}

/**
 * With the longest name and OPT they fit the 512 bytes that any client takes (message.codec.ts).
 * No share: limits one answer.
 */
const addressesMax = 8
/** No share: limits one answer. */
const aliasesMax = 8
const ttlSecondsMax = 2 ** 31 - 1

/**
 * Addresses at the end of the name's aliases; other records are ignored. Null: an alias loop, too many aliases, or a
 * malformed address.
 */
export function addressesOf(
  answers: readonly Answer[],
  { name, type }: { readonly name: string; readonly type: AddressType },
): Addresses | null {
  const aliases = new Map(answers.flatMap(record => (record.type === 'CNAME' ? [[plain(record.name), record]] : [])))
  let at = name
  let ttlSeconds = ttlSecondsMax
  for (let steps = 0; steps <= aliasesMax; steps += 1) {
    const found = answers.flatMap(record =>
      (record.type === 'A' || record.type === 'AAAA') && record.type === type && plain(record.name) === at
        ? [{ address: spelled(type, record.data), ttl: record.ttl ?? 0 }]
        : [],
    )
    if (found.length > 0) {
      const addresses = found.flatMap(({ address }) => (address === null ? [] : [address]))
      if (addresses.length < found.length) return null
      const ttls = found.map(({ ttl }) => ttl)
      return {
        addresses: [...new Set(addresses)].slice(0, addressesMax),
        ttlSeconds: Math.min(ttlSeconds, ...ttls),
      }
    }
    const alias = aliases.get(at)
    if (alias === undefined) return { addresses: [], ttlSeconds }
    ttlSeconds = Math.min(ttlSeconds, alias.ttl ?? 0)
    at = plain(alias.data)
  }
  return null
}

function spelled(type: AddressType, address: string): string | null {
  if (type === 'A') return isIPv4(address) ? address : null
  return isIPv6(address) && /^[0-9a-f:]+$/.test(address) ? formatIpv6(parseIpv6(address)) : null
}

function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}
