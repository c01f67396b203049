// Hosts of a fleet over one PostgreSQL: what requests, a host's death, names and an idle second cost, how that grows
// from 2 to 100 hosts, how long copies take, how much one writer commits, and what a fleet adds to a request at the
// gateway. Hosts have the real code but for VMs, which are scripted. Loopback only, without TLS.

import type { Figures } from './bench-report.ts'
import { startDatabase } from './fleet/bench-fleet.ts'
import { measureCopies } from './fleet/copies.ts'
import { measureFive } from './fleet/five-hosts.ts'
import { measureGateway } from './fleet/gateway.ts'
import { measureGrowth } from './fleet/growth.ts'
import { measureWall } from './fleet/wall.ts'
import type { BenchContext } from './main.ts'

export async function run({ note, signal }: BenchContext): Promise<Figures> {
  await using server = await startDatabase()
  const five = await measureFive(server, { note, signal })
  const gateway = await measureGateway(server, { note, signal })
  const copies = await measureCopies(server, { note, signal })
  const wall = await measureWall(server, { note, signal })
  return { ...five, ...gateway, ...copies, ...wall, ...(await measureGrowth(server, { note, signal })) }
}
