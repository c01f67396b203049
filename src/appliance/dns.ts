// Puts the DNS side together: the names that follow the store, and the server's thread. Effects: all of theirs.

import type { Clock } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { HOST_LISTENERS, listenAddress, serviceAddresses } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { defaultRouteAddress } from '../host/network/default-route.ts'
import { Names } from '../instances/dns/names.ts'
import { type DnsServer, startDns } from '../instances/dns/server.ts'
import { hostsPerAnswerMax } from '../instances/dns/zone.plan.ts'
import type { Store } from '../store/db.ts'
import type { Engine } from './engine.ts'
import type { DirectoryLink } from './fleet/directory.ts'

export type DnsParts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Pick<Engine, 'reconciler'>
  readonly link: Pick<DirectoryLink, 'waitsFor' | 'isShared' | 'isShutOut' | 'isReached'>
  readonly clock: Clock
  readonly log: Logger
}

/** Living instances of all hosts of a fleet, as a power of two. */
const fleetInstanceBits = 16

/** Follows the VMs at once; code that deletes instances notifies it. The table is filled by `serveDns`. */
export function composeNames({ config, store, engine, link, clock, log }: DnsParts): Names {
  // Where there is no IPv4 pool, the one of IPv6 is as large as the largest (vm/launch.plan.ts).
  const [, prefixLength = '16'] = config.network.pool_v4.split('/')
  const instanceBits = Math.max(32 - Number(prefixLength), link.isShared ? fleetInstanceBits : 0)
  const names = new Names({
    db: store.directory.db,
    hostId: store.hostId,
    engine: engine.reconciler,
    /** No share: one name for each VM address, and 65,536 instances in a fleet. */
    namesMax: 2 ** instanceBits + Object.keys(HOST_LISTENERS).length * hostsPerAnswerMax,
    report: write => link.isShared && store.directory.transact(write),
    // The copy here may lack a name then.
    isPartial: () => link.waitsFor() !== null || link.isShutOut() || !link.isReached(),
    hostAddresses: () => serviceAddresses(config, defaultRouteAddress()),
    clock,
    log: log.unit('dns'),
  })
  engine.reconciler.onChange(vmId => names.vmChanged(vmId))
  return names
}

/** Null if it is switched off. Fault host.unsupported: the address cannot be listened on. */
export async function serveDns(parts: DnsParts & { names: Names; random: RandomBytes }): Promise<DnsServer | null> {
  const { config, names, clock, random } = parts
  if (config.listen.dns === '') return null
  const log = parts.log.unit('dns')
  const unknown = Object.entries(serviceAddresses(config, defaultRouteAddress())).flatMap(([name, addresses]) =>
    addresses === null && config.listen[HOST_LISTENERS[name as keyof typeof HOST_LISTENERS]] !== '' ? [name] : [],
  )
  if (unknown.length > 0) {
    log.warn('host names of this appliance have no address', {
      names: unknown,
      remedy: 'set network.public_v4, or network.public_v6 for services on "[::]"',
    })
  }
  await names.start()
  const { hostname, port } = listenAddress(config.listen.dns)
  // There instances ask, and get what they may reach.
  const except = config.network.allow_names.length === 0 ? [] : [config.network.gateway_v4, config.network.gateway_v6]
  const publishes = config.tls.acme.published_per_week > 0
  const zone = { domain: config.domain, publishes, names: names.memory }
  return startDns({ address: hostname, port, except, ...zone, clock, random, log })
}
