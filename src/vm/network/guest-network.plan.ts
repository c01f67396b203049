// What a guest is told of its network. Pure.

import type { Network } from '../../contract/vm/agent.ts'
import type { VmAddresses } from '../room.query.ts'

export type GuestNetwork = {
  readonly gateway: string
  readonly gatewayV6: string
  /** Of the host's end, which the guest asks nobody for. */
  readonly gatewayMac: string
  readonly mtuBytes: number
  /** Of either family. A guest is told of those that it can ask. */
  readonly resolvers: readonly string[]
}

export function networkOf(host: GuestNetwork, { address, addressV6 }: VmAddresses): Network {
  const { gateway, gatewayV6, gatewayMac, mtuBytes, resolvers } = host
  return {
    ...(address === null ? {} : { address, gateway }),
    ...(addressV6 === null ? {} : { v6: { address: addressV6, gateway: gatewayV6, gatewayMac } }),
    mtuBytes,
    resolvers: resolvers.filter(resolver => (resolver.includes(':') ? addressV6 : address) !== null),
  }
}
