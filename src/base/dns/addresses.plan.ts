// Extracts a name's addresses from a resolver's answer (RFC 1034 3.6.2, RFC 1035 3.2.1). Pure.

import type { DnsRecord } from './answer.codec.ts'

export type AddressType = 'A' | 'AAAA'

export type Addresses = {
  /** Distinct addresses in canonical form; empty if the name has none of this type. */
  readonly addresses: readonly string[]
  /** The minimum of all records on the way. */
  readonly ttlSeconds: number
}

/**
 * Limit with which the longest name and OPT fit the 512 bytes that any client accepts (message.codec.ts). No share:
 * limits one answer.
 */
const addressesMax = 8
/** No share: limits one answer. */
const aliasesMax = 8
const ttlSecondsMax = 2 ** 31 - 1

/**
 * Returns the addresses at the end of the name's aliases, ignoring other records. Null for an alias loop, or too many
 * aliases.
 */
export function addressesOf(
  answers: readonly DnsRecord[],
  { name, type }: { readonly name: string; readonly type: AddressType },
): Addresses | null {
  const aliases = new Map(answers.flatMap(record => (record.type === 'CNAME' ? [[plain(record.name), record]] : [])))
  let at = name
  let ttlSeconds = ttlSecondsMax
  for (let steps = 0; steps <= aliasesMax; steps += 1) {
    const found = answers.filter(record => record.type === type && plain(record.name) === at)
    if (found.length > 0) {
      return {
        addresses: [...new Set(found.map(({ data }) => data))].slice(0, addressesMax),
        ttlSeconds: Math.min(ttlSeconds, ...found.map(({ ttl }) => ttl)),
      }
    }
    const alias = aliases.get(at)
    if (alias === undefined) return { addresses: [], ttlSeconds }
    ttlSeconds = Math.min(ttlSeconds, alias.ttl)
    at = plain(alias.data)
  }
  return null
}

function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}
