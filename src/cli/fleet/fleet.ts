// strongroom fleet: hosts that share one directory. Effects: requests to the daemon, or statements to the database of
// the configuration where no daemon answers; init, join and migrate always ask the database.

import { FleetHost } from '../../contract/admin/fleet.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import type { FleetAdmin } from '../../fleet/hosts/fleet-admin.ts'
import { type Command, path, type Run } from '../operator-run.ts'
import { askFleet, fleetHosts } from './ask.ts'
import { addMembership, type OwnerOptions, owned, ownerIn } from './membership.ts'
import { addShare } from './share/share.ts'
import { hostsText, hostText } from './text.ts'

export function addFleet(program: Command): void {
  const fleet = program
    .command('fleet')
    .description(
      'hosts that share one directory in PostgreSQL: init, join, rebind, leave, migrate; list, show, drain, remove, forget; share',
    )
    .examples('strongroom fleet list', 'strongroom fleet drain rack-1')
  addMembership(fleet)
  fleet
    .command('list')
    .description('list the hosts with state and free capacity')
    .examples('strongroom fleet list', 'strongroom fleet list --json')
    .runs(async run => {
      const found = await fleetHosts(run)
      await run.result(found, hostsText(found, run.paint))
    })
  for (const { name, description, method, isOwned = false } of COMMANDS) {
    const command = fleet.command(name)
    if (isOwned) owned(command)
    command
      .description(description)
      .argument('<host>', 'its name in the fleet')
      .examples(`strongroom fleet ${name} rack-1`)
      .runs(async (run, host: string, options: OwnerOptions) => {
        const at = name === 'show' ? path`/fleet/hosts/${host}` : path`/fleet/hosts/${host}/${name}`
        const request = { method, path: at, response: FleetHost } as const
        const direct = (admin: FleetAdmin) => admin[name](host)
        const owner = isOwned ? await ownerIn(run, options) : null
        const found = owner === null ? await askFleet(run, { request, direct }) : await directly(run, owner, direct)
        await run.result(found, hostText(found, run.paint))
      })
  }
  addShare(fleet)
}

async function directly<T>(run: Run, owner: PostgresTarget, work: (admin: FleetAdmin) => Promise<T>): Promise<T> {
  const { asRole } = await import('./direct.ts')
  return await asRole(run, owner, work)
}

type FleetCommand = {
  readonly name: 'show' | 'drain' | 'undrain' | 'remove' | 'forget'
  readonly method: 'GET' | 'POST'
  readonly description: string
  /** The role that owns the database does it, which `--as` names. */
  readonly isOwned?: boolean
}

const COMMANDS: readonly FleetCommand[] = [
  { name: 'show', method: 'GET', description: 'show all that a host reports' },
  {
    name: 'drain',
    method: 'POST',
    description: 'stop new instances and builds on a host; existing instances continue until their owners delete them',
  },
  { name: 'undrain', method: 'POST', description: 'allow new instances on a host again' },
  {
    name: 'remove',
    method: 'POST',
    description: 'remove a drained host without instances from the fleet',
    isOwned: true,
  },
  {
    name: 'forget',
    method: 'POST',
    description:
      'remove a lost host from the fleet; its instances fail with host_lost. Refused while the host renews its lease',
    isOwned: true,
  },
]
