// A gateway VM, an instance and a build VM as the firewall's plan names them, shared by golden text and namespaces.
// Pure.

import type { HostTablePlan } from '../../../src/vm/network/host-table.plan.ts'
import type { GatewayVmService, NftPlan, NftVm } from '../../../src/vm/network/nft.plan.ts'
import { guest, hostPlan, nextHop, plan, unspent } from '../guest/two-guests.ts'

export const servicePort = 8442
/** The host's port for gateway VMs. */
export const listenPort = 9442
export const upstream = { address: '192.0.2.9', port: 443 } as const
/** On this host. */
export const hostUpstream = { address: nextHop, port: 9999 } as const

/** 1, 2 and 5: the gateway's. 3: an instance. 4: builds. */
const networks = ['gateway', 'gateway', 'world', 'fetch', 'gateway'] as const

export type GatewayVmChange = {
  readonly service?: Partial<GatewayVmService>
  /** By number. */
  readonly vms?: Readonly<Record<number, Partial<NftVm>>>
  readonly listen?: NftPlan['gatewayListen']
}

/** This host's part of it. */
export function gatewayVmHostPlan(change: GatewayVmChange = {}): HostTablePlan {
  const { gatewayListen, gatewayVmService } = gatewayVmPlan(change)
  return hostPlan({ gatewayListen, gatewayVmService })
}

/** The first serves. */
export function gatewayVmPlan({ service = {}, vms = {}, listen }: GatewayVmChange = {}): NftPlan {
  return plan({
    nextHopPorts: [listenPort],
    gatewayListen: listen === undefined ? { address: '0.0.0.0', port: listenPort } : listen,
    gatewayVmService: {
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
