// The network settings that a guest gets. Pure.

import type { Network } from '../../contract/vm/network.ts'
import type { VmAddresses } from '../capacity.query.ts'

export type GuestNetwork = {
  readonly nextHop: string
  readonly nextHopV6: string
  /** MAC address of the host's end, a fixed neighbour of the guest. */
  readonly nextHopMac: string
  readonly mtuBytes: number
  /** Resolvers of either family. A guest gets those of the families that it has. */
  readonly resolvers: readonly string[]
}

export function networkOf(host: GuestNetwork, { address, addressV6 }: VmAddresses): Network {
  const { nextHop, nextHopV6, nextHopMac, mtuBytes, resolvers } = host
  return {
    ...(address === null ? {} : { address, gateway: nextHop }),
    ...(addressV6 === null ? {} : { v6: { address: addressV6, gateway: nextHopV6, gatewayMac: nextHopMac } }),
    mtuBytes,
    resolvers: resolvers.filter(resolver => (resolver.includes(':') ? addressV6 : address) !== null),
  }
}
