// Whether the gateway has started, from what the daemon reports. Pure.

import type { AdminGatewayVms } from '../contract/admin/gateway-vms.ts'

export type GatewayVm = AdminGatewayVms['gateways'][number]

/** `vm`: null if the gateway has no VM. */
export type GatewayWait =
  | { readonly kind: 'done'; readonly vm: GatewayVm | null }
  | { readonly kind: 'waits'; readonly text: string }

/** A gateway without a VM of its own is a part of the daemon, or off. */
export function gatewayWait({ placement, problem, gateways }: AdminGatewayVms): GatewayWait {
  if (placement !== 'vm') return { kind: 'done', vm: null }
  const current = gateways.filter(gateway => gateway.current)
  const serving = current.find(({ state }) => state === 'serving')
  if (serving !== undefined) return { kind: 'done', vm: serving }
  const starting = current.findLast(({ state }) => state === 'starting')
  const why = starting?.problem ?? problem
  return { kind: 'waits', text: why === null ? 'the gateway VM starts' : `the gateway VM: ${why}` }
}
