// The end of a fleet: its last host leaves it with its VMs. Effects: those of the operator's commands.

import { Database } from 'bun:sqlite'
import { join } from 'node:path'
import { leaveFleet } from '../../../src/cli/fleet/members.ts'
import { databaseFile } from '../../../src/host/state-files.ts'
import { createDraw } from '../../rigs/draw.ts'
import { until } from '../../rigs/until.ts'
import type { FaultedFleet, FaultedHost } from './faulted-fleet.ts'
import { forgetSilent } from './operator-faults.ts'
import { recordsOf, thingsOn } from './records.ts'
import { same } from './same.ts'
import type { Run } from './settle.ts'

const patientMs = 60_000
/** Its service is killed in the midst of them. */
const lastRequests = 12

/** `fleet leave` is refused while there are others; alone the host keeps instances, VMs and usage. Returns a line. */
export async function leaveFleetLast({ fleet, clients }: Run, seed: number): Promise<string> {
  const draw = createDraw(seed)
  const { hosts } = fleet
  const last = hosts[draw(hosts.length)] as FaultedHost
  const others = hosts.filter(host => host !== last)
  await fleet.kill(last)
  const refusal = await leaveFleet(fleet.membership(last)).then(String, (error: Error) => error.message)
  same('fleet leave beside other hosts', refusal, 'the fleet has other hosts: remove or forget them first')
  await fleet.start(last)
  for (const other of others) await fleet.kill(other)
  for (const other of others) await forgetSilent(fleet, other)
  hosts.splice(0, hosts.length, last)
  const rest = others.map(other => other.name)
  await until('the last host knows that it is alone', patientMs, async () => {
    const [first] = await clients.list(last)
    return first === undefined || !(await hasInstancesOf(fleet, last))
  })
  await clients.some(lastRequests, draw)
  await fleet.kill(last)
  const [before, things] = [recordsOf(last), thingsOn(last)]
  const rows = await leaveFleet(fleet.membership(last))
  const after = recordsOf(last)
  same(`things of ${last.name}`, thingsOn(last), things)
  same('VMs', after.vms, before.vms)
  same('usage', after.usage, before.usage)
  using sqlite = new Database(join(last.directory, databaseFile), { readonly: true })
  same('copies of a fleet', sqlite.query('SELECT count(*) AS count FROM replica').get(), { count: 0 })
  return `${last.name} left with ${rows} rows and ${after.vms.length} VMs, after ${rest.join(' and ')} had been forgotten`
}

async function hasInstancesOf(fleet: FaultedFleet, last: FaultedHost): Promise<boolean> {
  const { id } = last
  const text = `SELECT count(*) FROM strongroom.instances WHERE host_id <> '${id}' AND status IN ('provisioning', 'ready', 'terminating')`
  if ((await fleet.sql(text)) !== '0') return true
  using sqlite = new Database(join(last.directory, databaseFile), { readonly: true })
  const found = sqlite
    .query<{ count: number }, [string]>(
      "SELECT count(*) AS count FROM instances WHERE host_id <> ?1 AND status IN ('provisioning', 'ready', 'terminating')",
    )
    .get(id)
  return found?.count !== 0
}
