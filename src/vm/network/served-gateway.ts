// The gateway in VMs of network `gateway`: which of them gets new connections, and where they lead. Pure.

import { isIPv4 } from 'node:net'
import { type Static, Type } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { checked } from '../../contract/check.ts'
import { OrNull } from '../../contract/forms.ts'
import type { WantedVm } from './counted.plan.ts'
import type { GatewayVmService } from './nft.plan.ts'

const Port = Type.Integer({ minimum: 1, maximum: 65_535 })

/** Upstreams of a workload times addresses of each VM. No share: upstreams are the operator's. */
const upstreamCountMax = 64 * 8

/** The gateway in VMs of network `gateway`. */
const ServedGatewayVm = Type.Object({
  /** The VM that gets new connections once it is opened. Null if there is none. */
  serving: OrNull(Type.String()),
  /** TCP port of the gateway in each VM. */
  port: Port,
  /**
   * Upstreams, only IPv4. An address of this host opens nothing, except the next hop of VMs: include it only if the
   * configuration names it, never because a resolver answered with it.
   */
  upstreams: Type.Array(Type.Object({ address: Type.String(), port: Port }), { maxItems: upstreamCountMax }),
})
export type ServedGatewayVm = Readonly<Omit<Static<typeof ServedGatewayVm>, 'upstreams'>> &
  Pick<GatewayVmService, 'upstreams'>

export function gatewayVmServiceOf(
  gatewayVm: ServedGatewayVm | null,
  vms: readonly WantedVm[],
): GatewayVmService | null {
  if (gatewayVm === null) return null
  const { serving, port, upstreams } = gatewayVm
  const vm = vms.find(({ vmId, network, opened }) => vmId === serving && network === 'gateway' && opened)
  return { port, address: vm?.address ?? null, upstreams }
}

/** Parses the setting. Refuses anything but addresses, because they are written into a ruleset. Fault internal. */
export function readGatewayVm(value: unknown): ServedGatewayVm {
  const gatewayVm = checked(ServedGatewayVm, value, { what: 'the gateway VM that serves', code: 'internal' })
  const wrong = gatewayVm.upstreams.find(({ address }) => !isIPv4(address))
  if (wrong !== undefined)
    throw new Fault('internal', `not an address of an upstream: ${JSON.stringify(wrong.address)}`)
  return gatewayVm
}
