// A gateway VM, an instance and a build VM as the firewall's plan names them, shared by golden text and namespaces.
// Pure.

import type { HostTablePlan } from '../../../src/vm/network/host-table.plan.ts'
import type { GatewayService, NftPlan, NftVm } from '../../../src/vm/network/nft.plan.ts'
import { gateway, guest, hostPlan, plan, unspent } from '../guest/two-guests.ts'

export const servicePort = 8442
/** The host's port for gateway VMs. */
export const listenPort = 9442
export const upstream = { address: '192.0.2.9', port: 443 } as const
/** On this host. */
export const hostUpstream = { address: gateway, port: 9999 } as const

/** 1, 2 and 5: the gateway's. 3: an instance. 4: builds. */
const networks = ['gateway', 'gateway', 'world', 'fetch', 'gateway'] as const

export type GatewayChange = {
  readonly service?: Partial<GatewayService>
  /** By number. */
  readonly vms?: Readonly<Record<number, Partial<NftVm>>>
  readonly listen?: NftPlan['gatewayListen']
}

/** This host's part of it. */
export function gatewayHostPlan(change: GatewayChange = {}): HostTablePlan {
  const { gatewayListen, gatewayService } = gatewayPlan(change)
  return hostPlan({ gatewayListen, gatewayService })
}

/** The first serves. */
export function gatewayPlan({ service = {}, vms = {}, listen }: GatewayChange = {}): NftPlan {
  return plan({
    gatewayPorts: [listenPort],
    gatewayListen: listen === undefined ? { address: '0.0.0.0', port: listenPort } : listen,
    gatewayService: {
      port: servicePort,
      address: guest(1).address,
      upstreams: [upstream, hostUpstream],
      ...service,
    },
    vms: networks.map((network, at) => ({
      ...guest(at + 1),
      ...unspent,
      limitBytes: network === 'gateway' ? Number.MAX_SAFE_INTEGER : unspent.limitBytes,
      opened: true,
      network,
      ...vms[at + 1],
    })),
  })
}
