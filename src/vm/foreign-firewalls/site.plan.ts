// The part of the configuration that decides which packets must pass this host's firewalls. Pure.

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
  const gatewayPorts = isGatewayInVm ? [] : guestGateway(config, guestGatewayName).ports
  const fetchPorts = listen.builds !== '' && builds.fetch_hosts.length > 0 ? [builds.fetch_port] : []
  return {
    tapPrefix: network.tap_prefix,
    pool: network.pool_v4 || null,
    gateway: network.gateway_v4,
    uplink,
    services: here.flatMap(name => {
      const { port } = listenAddress(listen[name])
      const protocols = name === 'dns' ? (['tcp', 'udp'] as const) : (['tcp'] as const)
      return protocols.map(protocol => ({ name: NAMES[name], protocol, port }))
    }),
    guestPorts: [...gatewayPorts, ...fetchPorts],
    v6:
      network.pool_v6 === '' ? null : { pool: network.pool_v6, gateway: network.gateway_v6, guestPorts: gatewayPorts },
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

/** Not when off, on a port that the kernel chooses (tests) or on a loopback address. */
function isFromOutside(listen: string): boolean {
  if (listen === '') return false
  const { hostname, port } = listenAddress(listen)
  return port !== 0 && !hostname.startsWith('127.') && hostname !== '::1'
}
