// The gateway's VMs in the admin interface. Effects: what is done with them is the appliance's, and comes in as functions.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminGatewayLog, AdminGateways } from '../contract/admin.ts'
import type { AdminDeps } from './deps.ts'

type InferenceDeps = Pick<AdminDeps, 'gatewayVm'>
type GatewayVm = NonNullable<AdminDeps['gatewayVm']>

export function inferenceRoutes({ gatewayVm }: InferenceDeps) {
  return new Elysia({ normalize: false })
    .get('/inference', () => show(gatewayVm), { response: AdminGateways })
    .post('/inference/update', () => update(present(gatewayVm)), { response: AdminGateways })
    .get('/inference/log', ({ query }) => ({ lines: present(gatewayVm).session()?.log(query.from) ?? [] }), {
      query: Type.Object({ from: t.Integer({ default: 0, minimum: 0 }) }),
      response: AdminGatewayLog,
    })
}

function show(gatewayVm: AdminDeps['gatewayVm']): AdminGateways {
  if (gatewayVm === null) return { placement: 'host', problem: null, gateways: [] }
  const { gateways, problem } = gatewayVm.view()
  return {
    placement: 'vm',
    problem,
    gateways: gateways.map(({ vmId, state, address, status, sinceMs, isWanted, booked, reason }) => ({
      vm: vmId,
      state,
      address,
      since: iso(sinceMs),
      current: isWanted,
      workload_sha256: status?.workload ?? null,
      keys_revision: status?.revision ?? null,
      requests_running: status?.running ?? null,
      usage_waiting: status?.usageWaiting ?? null,
      usage_booked: booked,
      problem: status?.problem ?? null,
      reason,
    })),
  }
}

/** Fault conflict: no VM serves. */
function update(gatewayVm: GatewayVm): AdminGateways {
  if (!gatewayVm.replace()) {
    throw new Fault('conflict', 'no gateway VM serves that could be replaced; `strongroom inference show` says why')
  }
  return show(gatewayVm)
}

/** Fault conflict: there are no gateway VMs. */
function present(gatewayVm: AdminDeps['gatewayVm']): GatewayVm {
  if (gatewayVm !== null) return gatewayVm
  throw new Fault('conflict', 'the gateway has no VM here; set inference.placement = "vm" and start the daemon again')
}
