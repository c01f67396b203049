// Looks up the delegation of the appliance's domain, as clients do: the NS records in the zone above it. Effects: DNS
// queries.

import type { DnsAnswer, DnsRecord } from '../../base/dns/answer.codec.ts'
import { messageOf } from '../../base/fault.ts'
import { askDns, type DnsQuestion } from '../../linux/net/dns-ask.ts'
import { type DelegationFacts, privateName } from './delegation.plan.ts'

export type DelegationOptions = {
  readonly domain: string
  /** Addresses of resolvers; the first that answers is used. */
  readonly resolvers: readonly string[]
  readonly port?: number
  readonly timeoutMs?: number
}

const askedServersMax = 3
const FAMILIES = ['A', 'AAAA'] as const
const labelsMax = 10
/** An answer may hold any number. */
const namesMax = 8

/** Never throws; done within two dozen times `timeoutMs`. */
export async function collectDelegationFacts(options: DelegationOptions): Promise<DelegationFacts> {
  const { domain, resolvers } = options
  const why = privateName(domain)
  if (why !== null) return { kind: 'none', reason: why }
  if (resolvers.length === 0) return { kind: 'none', reason: '/etc/resolv.conf names no resolver to ask' }
  try {
    return await new Delegation(options).find()
  } catch (error) {
    return { kind: 'none', reason: messageOf(error) }
  }
}

class Delegation {
  readonly #options: Required<DelegationOptions>
  #resolver: string | null = null

  constructor(options: DelegationOptions) {
    this.#options = { port: 53, timeoutMs: 1_000, ...options }
  }

  async find(): Promise<DelegationFacts> {
    const zone = await this.#zoneAbove()
    if (zone === null) return { kind: 'none', reason: 'the resolver finds no zone above the domain' }
    let failure = `no name server of ${zone.name} has an address`
    for (const name of zone.servers.slice(0, askedServersMax)) {
      // A host without IPv4 reaches a name server by IPv6 alone.
      for (const type of FAMILIES) {
        const [server] = await this.#addressesOf(name, type)
        if (server === undefined) continue
        try {
          return await this.#asked(zone.name, { name, server })
        } catch (error) {
          failure = messageOf(error)
        }
      }
    }
    return { kind: 'none', reason: failure }
  }

  /** The nearest zone above the domain that has name servers of its own. */
  async #zoneAbove(): Promise<{ readonly name: string; readonly servers: readonly string[] } | null> {
    const labels = this.#options.domain.split('.')
    for (let from = 1; from < Math.min(labels.length, labelsMax); from += 1) {
      const name = labels.slice(from).join('.')
      const { answers } = await this.#resolve(name, 'NS')
      const servers = namesOf(answers, name)
      if (servers.length > 0) return { name, servers }
    }
    return null
  }

  async #asked(zone: string, { name, server }: { name: string; server: string }): Promise<DelegationFacts> {
    const { domain } = this.#options
    const { answers, authorities, additionals } = await this.#ask({
      server,
      name: domain,
      type: 'NS',
      recursion: false,
    })
    const nameServers = namesOf([...answers, ...authorities], domain)
    const addresses = nameServers.flatMap(server => addressesIn(additionals, server))
    // Names of another zone come without their addresses.
    for (const text of addresses.length === 0 ? nameServers.slice(0, askedServersMax) : [])
      for (const type of FAMILIES) addresses.push(...(await this.#addressesOf(text, type)))
    return {
      kind: 'asked',
      zone,
      by: name,
      nameServers: nameServers.slice(0, namesMax),
      addresses: [...new Set(addresses)].slice(0, namesMax),
    }
  }

  async #addressesOf(name: string, type: (typeof FAMILIES)[number]): Promise<string[]> {
    return addressesIn((await this.#resolve(name, type)).answers, null)
  }

  async #resolve(name: string, type: 'A' | 'AAAA' | 'NS'): Promise<DnsAnswer> {
    const { resolvers } = this.#options
    let failure: unknown = null
    for (const server of this.#resolver === null ? resolvers : [this.#resolver]) {
      try {
        const answer = await this.#ask({ server, name, type, recursion: true })
        this.#resolver = server
        return answer
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  #ask(question: Omit<DnsQuestion, 'port' | 'timeoutMs'>): Promise<DnsAnswer> {
    const { port, timeoutMs } = this.#options
    return askDns({ ...question, port, timeoutMs })
  }
}

function namesOf(records: readonly DnsRecord[], owner: string): string[] {
  return records.flatMap(record => (record.type === 'NS' && isSameName(record.name, owner) ? [plain(record.data)] : []))
}

/** `owner` null: any name; an alias leads to another name. */
function addressesIn(records: readonly DnsRecord[], owner: string | null): string[] {
  return records.flatMap(record =>
    (record.type === 'A' || record.type === 'AAAA') && (owner === null || isSameName(record.name, owner))
      ? [record.data]
      : [],
  )
}

function isSameName(text: string, other: string): boolean {
  return plain(text) === plain(other)
}

function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}
