// Puts together the resolver for instances where the configuration has a list of names. Effects: listens on the
// next hops of instances while it runs; those of the resolver.

import { networkInterfaces } from 'node:os'
import type { Clock } from '../base/clock.ts'
import { messageOf, systemErrorCode } from '../base/fault.ts'
import { containsRange, rangeOf } from '../base/ipv4.ts'
import { coversV6, rangeOfV6 } from '../base/ipv6.ts'
import type { Logger } from '../base/log.ts'
import { type Collector, metricsText } from '../base/prometheus.ts'
import { sweep } from '../base/work/sweep.ts'
import { NameList } from '../config/allow-names.ts'
import { guestDnsPort } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import type { AdminNames } from '../contract/admin/names.ts'
import { dnsLimits } from '../host/network/dns-socket.ts'
import { UdpListener } from '../host/network/dns-udp.ts'
import { ownNetworks } from '../host/network/own-networks.ts'
import { GuestResolver, type GuestResolverLimits } from '../instances/guest-dns/resolver.ts'
import { askDns } from '../linux/net/dns-ask.ts'
import { destinationKind } from '../vm/network/egress.plan.ts'
import type { VmNetwork } from '../vm/network/network.driver.ts'
import { firewallSettings } from './engine.ts'

export type GuestDnsParts = {
  readonly config: Config
  readonly engine: { readonly network: Pick<VmNetwork, 'openNamed' | 'namedCount'> }
  readonly clock: Clock
  readonly log: Logger
  /** Tests have shorter times. */
  readonly limits?: Partial<GuestResolverLimits>
}

export type GuestDns = Pick<Collector, 'render'> & AsyncDisposable & { readonly status: () => AdminNames }

/** Timeout of each resolver. Instances wait 5 s for a first answer (resolv.conf(5)). */
const askTimeoutMs = 1_500
const followMs = 250
/** Some send more than the 1232 bytes that the query allows. */
const asking = { port: 53, recursion: true, timeoutMs: askTimeoutMs, answerBytesMax: 4_096 } as const

/** Listens from now on. Null if instances reach the world without it. */
export function composeGuestDns({ config, engine, clock, ...parts }: GuestDnsParts): GuestDns | null {
  const { network } = config
  if (network.allow_names.length === 0) return null
  const log = parts.log.unit('names')
  const resolver = new GuestResolver({
    list: new NameList(network.allow_names),
    types: [
      ...(network.pool_v4 === '' ? [] : (['A'] as const)),
      ...(network.pool_v6 === '' ? [] : (['AAAA'] as const)),
    ],
    isInstance: address => isInPool(address, network),
    kindOf: destinations(config),
    resolvers: network.resolvers,
    ask: question => askDns({ ...question, ...asking }),
    open: (addresses, by) => engine.network.openNamed(addresses, by),
    clock,
    log,
    limits: parts.limits ?? {},
  })
  const listeners = new GuestListeners(resolver, { clock, log })
  const nextHops = [
    ...(network.pool_v4 === '' ? [] : [network.gateway_v4]),
    ...(network.pool_v6 === '' ? [] : [network.gateway_v6]),
  ]
  const stopping = new AbortController()
  const following = listeners.follow(nextHops, stopping.signal)
  const status = () => ({
    entries: network.allow_names.length,
    addresses: engine.network.namedCount(),
    listening: listeners.addresses(),
    ...resolver.counts(),
  })
  return {
    status,
    render: () => render(status()),
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await following
    },
  }
}

function isInPool(address: string, { pool_v4: v4, pool_v6: v6 }: Config['network']): boolean {
  if (address.includes(':')) return v6 !== '' && coversV6(rangeOfV6(v6), rangeOfV6(address))
  return v4 !== '' && containsRange(rangeOf(v4), rangeOf(address))
}

/** The firewall's rules; in addition no name opens any address of this host. */
function destinations(config: Config): (address: string) => 'world' | 'open' | 'denied' {
  const { public_v4, public_v6, gateway_v4, gateway_v6 } = config.network
  const settings = firewallSettings(config, { gatewayInVm: false })
  const { pool, v6, egress } = settings
  return address => {
    const own = Object.values(networkInterfaces()).flatMap(all => (all ?? []).map(info => info.address))
    if ([...own, public_v4, public_v6, gateway_v4, gateway_v6].includes(address)) return 'denied'
    const networks = ownNetworks({ withV6: v6 !== null })
    return destinationKind(address, { pool, v6, allowed: egress.allowed, ownNetworks: networks })
  }
}

/** The addresses are there while a VM has a tap; a socket that has one once keeps it. */
class GuestListeners {
  readonly #resolver: GuestResolver
  readonly #clock: Clock
  readonly #log: Logger
  readonly #open = new Map<string, UdpListener>()
  #hasFailed = false

  constructor(resolver: GuestResolver, { clock, log }: Pick<GuestDnsParts, 'clock' | 'log'>) {
    this.#resolver = resolver
    this.#clock = clock
    this.#log = log
  }

  addresses(): string[] {
    return [...this.#open.keys()]
  }

  /** Until the signal is aborted. Never rejects. */
  async follow(nextHops: readonly string[], signal: AbortSignal): Promise<void> {
    await sweep({ clock: this.#clock, intervalMs: followMs, signal }, async () => {
      for (const address of nextHops) if (!this.#open.has(address)) await this.#listen(address)
    })
    for (const listener of this.#open.values()) listener.close()
    this.#open.clear()
  }

  async #listen(address: string): Promise<void> {
    try {
      const listener = await UdpListener.open({
        hostname: address,
        port: guestDnsPort,
        limits: dnsLimits,
        respond: (query, from, later) => this.#resolver.respond(query, from, later),
      })
      this.#open.set(address, listener)
      this.#log.info('instances are answered here when they ask for names', { address, port: guestDnsPort })
    } catch (error) {
      // No VM has a tap yet.
      if (systemErrorCode(error) === 'EADDRNOTAVAIL' || this.#hasFailed) return
      this.#hasFailed = true
      const remedy = 'end what listens there (all addresses, UDP port 53), or keep it off this address'
      this.#log.error('instances cannot ask for names', { address, reason: messageOf(error), remedy })
    }
  }
}

function render({ addresses, ...counts }: AdminNames): string {
  const kinds = ['answered', 'blocked', 'failed'] as const
  return metricsText([
    {
      name: 'strongroom_named_addresses',
      help: 'Addresses that are open to instances because of names that they may reach.',
      type: 'gauge',
      samples: [{ labels: {}, value: addresses }],
    },
    {
      name: 'strongroom_name_questions_total',
      help: 'What became of the names that instances asked for.',
      type: 'counter',
      samples: kinds.map(result => ({ labels: { result }, value: counts[result] })),
    },
  ])
}
