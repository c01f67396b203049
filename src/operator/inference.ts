// The gateway's VMs in the admin interface. Effects: the appliance controls them, through functions.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { AdminStatus } from '../contract/admin/admin.ts'
import { AdminGatewayVmLog, AdminGatewayVms } from '../contract/admin/gateway-vms.ts'
import type { AdminDeps, GatewayVmControl, PlacedGatewayControl } from './deps.ts'

export function inferenceRoutes({ gateway }: Pick<AdminDeps, 'gateway'>) {
  return new Elysia({ normalize: false })
    .get('/inference', () => gatewayView(gateway), { response: AdminGatewayVms })
    .post('/inference/update', () => update(inVm(gateway)), { response: AdminGatewayVms })
    .get('/inference/log', ({ query }) => ({ lines: inVm(gateway).session()?.log(query.from) ?? [] }), {
      query: Type.Object({ from: t.Integer({ default: 0, minimum: 0 }) }),
      response: AdminGatewayVmLog,
    })
}

/** Returns the gateway's part of `strongroom status`. */
export function gatewaySummary(
  gateway: PlacedGatewayControl,
): Omit<AdminStatus['gateway'], 'traces' | 'attested_upstreams'> {
  const { placement, problem, gateways } = gatewayView(gateway)
  const shown =
    gateways.find(({ state }) => state === 'serving') ?? gateways.findLast(({ state }) => state === 'starting')
  const state = shown?.state === 'serving' || shown?.state === 'starting' ? shown.state : null
  return { placement, vm: shown?.vm ?? null, state, problem: shown?.problem ?? problem }
}

/** Returns the gateway's VMs as the admin interface shows them. */
export function gatewayView(gateway: PlacedGatewayControl): AdminGatewayVms {
  if (typeof gateway === 'string') return { placement: gateway, problem: null, gateways: [] }
  const { gatewayVms, problem } = gateway.view()
  return {
    placement: 'vm',
    problem,
    gateways: gatewayVms.map(({ vmId, state, address, status, sinceMs, isWanted, booked, reason, ...rest }) => ({
      vm: vmId,
      state,
      address,
      since: iso(sinceMs),
      current: isWanted,
      workload_sha256: status?.workload ?? null,
      keys_revision: status?.revision ?? null,
      requests_running: status?.running ?? null,
      usage_waiting: status?.usageWaiting ?? null,
      usage_waiting_since: isoOrNull(rest.usageWaitingSinceMs),
      usage_booked: booked,
      problem: rest.problem,
      reason,
    })),
  }
}

/** Replaces the serving VM. Throws Fault conflict if no VM serves. */
function update(gateway: GatewayVmControl): AdminGatewayVms {
  if (!gateway.replace()) {
    throw new Fault('conflict', 'no serving gateway VM can be replaced; `strongroom inference show` has the reason')
  }
  return gatewayView(gateway)
}

/** Returns the control of gateway VMs. Throws Fault conflict if there are none. */
function inVm(gateway: PlacedGatewayControl): GatewayVmControl {
  if (typeof gateway !== 'string') return gateway
  const remedy =
    gateway === 'off' ? 'listen.inference is off' : 'set inference.placement = "vm" and start the daemon again'
  throw new Fault('conflict', `the gateway has no VM here; ${remedy}`)
}
