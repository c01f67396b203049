// Questions about the fleet: to the daemon, which records them, or to the database itself where no daemon runs here.
// Effects: those of both.

import type { Static, TSchema } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { FleetHosts } from '../../contract/admin/fleet.ts'
import type { FleetAdmin } from '../../fleet/hosts/fleet-admin.ts'
import type { AdminRequest } from '../daemon-client.ts'
import type { Run } from '../operator-run.ts'

type Question<T extends TSchema> = {
  readonly request: AdminRequest<T>
  readonly direct: (admin: FleetAdmin) => Promise<Static<T>>
}

/**
 * Runs a command for a fleet. Faults: those of the daemon's answer; without a daemon `fleet.unavailable`, and those of
 * `direct`.
 */
export async function askFleet<T extends TSchema>(run: Run, { request, direct }: Question<T>): Promise<Static<T>> {
  return await run
    .client()
    .request(request)
    .catch(async (error: unknown) => {
      if (!(error instanceof Fault) || error.code !== 'admin.unreachable') throw error
      const { withFleetAdmin } = await import('./direct.ts')
      return await withFleetAdmin(run, error, direct)
    })
}

/** All hosts of the fleet. Faults as above. */
export async function fleetHosts(run: Run): Promise<FleetHosts> {
  const request = { path: '/fleet/hosts', response: FleetHosts }
  return await askFleet(run, { request, direct: async admin => ({ hosts: await admin.list() }) })
}
