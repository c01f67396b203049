// A run of the checker of a fleet: clients and faults drawn from a seed, the wait until all has settled, the checks,
// and the last host's way out of the fleet. Effects: those of the fleet.

import { PostgresPair } from '../../rigs/postgres/pair.ts'
import { checkFleet } from './checks.ts'
import { FleetClients } from './clients.ts'
import { FaultedFleet } from './faulted-fleet.ts'
import { type FaultGroup, Faults } from './faults.ts'
import { leaveFleetLast } from './leave.ts'
import { type Run, settle } from './settle.ts'

export type RunOptions = {
  readonly seed: number
  readonly faultCount: number
  readonly hostCount: number
  readonly clientCount: number
  readonly groups: readonly FaultGroup[]
  /** Gets a line for each fault and step. */
  readonly print: (line: string) => void
}

/** Hosts sign in with passwords, which a fault changes. */
const access = [
  'local all all trust',
  'host all owner 127.0.0.1/32 trust',
  'host replication all 127.0.0.1/32 trust',
  'host all all 127.0.0.0/8 scram-sha-256',
]

/** Throws at the first finding, with the faults and the ends of the hosts' logs. Returns lines about the checks. */
export async function runFaults(options: RunOptions): Promise<string[]> {
  const { seed, faultCount, hostCount, clientCount, groups, print } = options
  // Less than the clients of a run want to spend.
  const spends = faultCount * clientCount
  const budgets = { k1: 2_000 + 6 * spends, organization: 4_000 + 16 * spends }
  const startedMs = performance.now()
  const seconds = () => Math.round((performance.now() - startedMs) / 1_000)
  await using databases = await PostgresPair.open({ access })
  await using fleet = await FaultedFleet.open(databases, { hostCount, budgets, note: print })
  print(`the fleet serves after ${seconds()} s`)
  const clients = new FleetClients(fleet, clientCount)
  const run = { fleet, clients, budgets }
  const faults = new Faults(fleet, seed, groups)
  try {
    await faultsAndClients(run, faults, { seed, faultCount, clientCount })
    const faultsS = seconds()
    await faults.healAll()
    print(`nothing is wrong any more after ${seconds()} s`)
    await settle(run, seed)
    const checked = await checkFleet(run)
    const left = await leaveFleetLast(run, seed)
    const took = `${faults.made.length} faults in ${faultsS} s, ${hostCount} hosts, ${clientCount} clients; ${seconds()} s in all`
    return [took, ...checked, left]
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
    throw new Error([text, ...faults.made, clients.lastRefusal, fleet.logs()].join('\n'))
  }
}

async function faultsAndClients(
  { clients }: Run,
  faults: Faults,
  { seed, faultCount, clientCount }: Pick<RunOptions, 'seed' | 'faultCount' | 'clientCount'>,
): Promise<void> {
  const ended = new AbortController()
  const running = Array.from({ length: clientCount }, (_, i) => clients.run(`c${i}`, seed + i + 1, ended.signal))
  const broken = Promise.all(running)
  for (let count = 0; count < faultCount; count += 1) await Promise.race([faults.next(), broken])
  ended.abort()
  await broken
}
