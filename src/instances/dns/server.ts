// The DNS server for `{domain}`: codec, socket and lookup put together. Effects: listens; reads the store.

import type { Logger } from '../../base/log.ts'
import { listenDns } from '../../host/network/dns-socket.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { findInstance } from '../../store/directory/instance.query.ts'
import { findOrganization } from '../../store/directory/organization.query.ts'
import type { VmEngine } from '../../vm/engine.ts'
import { dnsResponse, nameServerLabel, type ResolveAddress } from './zone.codec.ts'

export type DnsDeps = {
  readonly address: string
  /** 0: any free port. */
  readonly port: number
  readonly domain: string
  /** Where the appliance itself is reached, for `ns.` and `instances.`; null when it is not known. */
  readonly hostAddress: string | null
  readonly resolve: ResolveAddress
  readonly nowMs: () => number
  readonly log: Logger
}

export type DnsServer = { readonly port: number; readonly close: () => void }

/** Fault host.unsupported when the address or port cannot be had. */
export async function startDns(deps: DnsDeps): Promise<DnsServer> {
  const { address, port, domain, resolve, log } = deps
  const hosts = new Map([nameServerLabel, ...apiLabels].map(label => [label, deps.hostAddress]))
  return await listenDns({
    address,
    port,
    log,
    handler: (query, { transport }) => {
      // The zone may change at any moment, so its serial is the time (RFC 1912 2.2 leaves the scheme open).
      const zone = { domain, hosts, serial: Math.floor(deps.nowMs() / 1000) >>> 0 }
      return dnsResponse(query, { zone, transport, resolve })
    },
  })
}

/** Host names of services A and B under the domain; also in the local certificate. */
const apiLabels = ['instances', 'inference'] as const

/** A name exists from the moment that its instance has an address until its deletion is accepted. */
export function createAddressResolver(deps: {
  readonly db: DirectoryDb
  readonly engine: Pick<VmEngine, 'view'>
}): ResolveAddress {
  return (name, slug) => {
    const organization = findOrganization(deps.db, slug)
    if (organization === null) return null
    const instance = findInstance(deps.db, { organizationId: organization.id, name })
    if (instance === null || instance.desired === 'absent' || instance.vmId === null) return null
    return deps.engine.view(instance.vmId)?.address ?? null
  }
}
