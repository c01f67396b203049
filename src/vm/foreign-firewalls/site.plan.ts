// What of the configuration decides which packets have to pass this host's firewalls. Pure.

import { guestDnsPort, guestGateway, LISTENERS, type Listener, listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { guestGatewayName } from '../../contract/vm/agent.ts'
import { gatewayVmPort } from '../../contract/vm/enclave.ts'
import type { FirewallSite } from './foreign.plan.ts'

/** `uplink`: interface of the default route. */
export function firewallSite(config: Config, uplink: string | null): FirewallSite {
  const { listen, network, inference, builds } = config
  const isGatewayInVm = listen.inference !== '' && inference.placement === 'vm'
  const here = LISTENERS.filter(name => isFromOutside(listen[name]) && !(name === 'inference' && isGatewayInVm))
  const fetchPorts = listen.builds !== '' && builds.fetch_hosts.length > 0 ? [builds.fetch_port] : []
  return {
    tapPrefix: network.tap_prefix,
    pool: network.pool_v4 || null,
    gateway: network.gateway_v4,
    uplink,
    services: here.flatMap(name =>
      protocolsOf(name).map(protocol => ({ name: NAMES[name], protocol, port: portOf(listen[name]) })),
    ),
    guestPorts: [...(isGatewayInVm ? [] : guestGateway(config, guestGatewayName).ports), ...fetchPorts],
    v6:
      network.pool_v6 === ''
        ? null
        : {
            pool: network.pool_v6,
            gateway: network.gateway_v6,
            guestPorts: isGatewayInVm ? [] : guestGateway(config, guestGatewayName).ports,
          },
    guestDnsPort: network.allow_names.length === 0 ? null : guestDnsPort,
    gatewayVmPort: isGatewayInVm ? gatewayVmPort : null,
  }
}

const NAMES = {
  instances: 'service A',
  inference: 'service B',
  builds: 'service C',
  dns: 'the DNS',
} as const satisfies Record<Listener, string>

function protocolsOf(name: Listener): readonly ('tcp' | 'udp')[] {
  return name === 'dns' ? ['tcp', 'udp'] : ['tcp']
}

function portOf(listen: string): number {
  return listenAddress(listen).port
}

/** Off, on a port that the kernel chooses (tests), or on a loopback address: nobody comes from outside. */
function isFromOutside(listen: string): boolean {
  if (listen === '') return false
  const { hostname, port } = listenAddress(listen)
  return port !== 0 && !hostname.startsWith('127.') && hostname !== '::1'
}
