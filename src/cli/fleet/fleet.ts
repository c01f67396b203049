// strongroom fleet: hosts that share one directory. Effects: requests to the daemon, or statements to the database of
// the configuration where no daemon answers; init, join and migrate always ask the database.

import type { Static, TSchema } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { FleetHost, FleetHosts } from '../../contract/admin/fleet.ts'
import type { FleetAdmin } from '../../fleet/hosts/fleet-admin.ts'
import { type Command, path, type Run } from '../cli.ts'
import type { AdminRequest } from '../operator/client.ts'
import type { Paint } from '../render.ts'
import { addMembership } from './membership.ts'
import { hostsText, hostText } from './text.ts'

export function addFleet(program: Command): void {
  const fleet = program
    .command('fleet')
    .description(
      'hosts that share one directory in PostgreSQL: init, join, leave, migrate; list, show, drain, remove, forget',
    )
    .examples('strongroom fleet list', 'strongroom fleet drain rack-1')
  addMembership(fleet)
  fleet
    .command('list')
    .description('list the hosts, what each is doing and has room for')
    .examples('strongroom fleet list', 'strongroom fleet list --json')
    .runs(async run => {
      const request = { path: '/fleet/hosts', response: FleetHosts }
      await ask(run, { request, direct: async admin => ({ hosts: await admin.list() }), text: hostsText })
    })
  for (const { name, description, method } of COMMANDS) {
    fleet
      .command(name)
      .description(description)
      .argument('<host>', 'its name in the fleet')
      .examples(`strongroom fleet ${name} rack-1`)
      .runs(async (run, host: string) => {
        const at = name === 'show' ? path`/fleet/hosts/${host}` : path`/fleet/hosts/${host}/${name}`
        const request = { method, path: at, response: FleetHost } as const
        await ask(run, { request, direct: admin => admin[name](host), text: hostText })
      })
  }
}

const COMMANDS = [
  { name: 'show', method: 'GET', description: 'show all that a host reports' },
  {
    name: 'drain',
    method: 'POST',
    description: 'give a host no new instances; those that it has go on until their owners delete them',
  },
  { name: 'undrain', method: 'POST', description: 'give a host new instances again' },
  { name: 'remove', method: 'POST', description: 'take a host out that has drained and has no instance left' },
  {
    name: 'forget',
    method: 'POST',
    description: 'take a host out that does not come back: its instances fail with host_lost. Refused while it renews',
  },
] as const

type Question<T extends TSchema> = {
  readonly request: AdminRequest<T>
  readonly direct: (admin: FleetAdmin) => Promise<Static<T>>
  readonly text: (found: Static<T>, paint: Paint) => string
}

/** By the daemon, which records the command; by the database itself where no daemon runs here. */
async function ask<T extends TSchema>(run: Run, { request, direct, text }: Question<T>): Promise<void> {
  const found = await run
    .client()
    .request(request)
    .catch(async (error: unknown) => {
      if (!(error instanceof Fault) || error.code !== 'admin.unreachable') throw error
      const { withFleetAdmin } = await import('./direct.ts')
      return await withFleetAdmin(run, error, direct)
    })
  await run.result(found, text(found, run.paint))
}
