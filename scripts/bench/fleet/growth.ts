// Cost of a request and of an idle second as the fleet grows. Effects: those of the fleets.

import { present } from '../../../src/base/assert.ts'
import { table } from '../../lib/terminal.ts'
import type { PostgresServer } from '../../rigs/postgres/server.ts'
import type { Figure, Figures } from '../bench-report.ts'
import { median, round } from '../gateway/cost.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet, timedCreate, timedList } from './bench-fleet.ts'

type Context = Pick<BenchContext, 'note' | 'signal'>

const hostCounts = [2, 10, 50]
const vmsEach = 100
const [createRuns, listRuns] = [30, 50]
const idleMs = 15_000

const UNITS = {
  createMs: 'ms',
  createStatements: '',
  createDatabaseMs: 'ms',
  listMs: 'ms',
  listStatements: '',
  idleStatementsS: '/s',
  idleDatabaseMsS: 'ms/s',
  idleHostCpuMsS: 'ms/s',
} as const

/** For a request, or for a second of the whole fleet; `idleHostCpuMsS` of one host. */
type Costs = Readonly<Record<keyof typeof UNITS, number>>

export async function measureGrowth(server: PostgresServer, { note, signal }: Context): Promise<Figures> {
  const all: { readonly hostCount: number; readonly costs: Costs }[] = []
  for (const hostCount of hostCounts) {
    signal.throwIfAborted()
    const costs = await measureSize(server, hostCount, { note, signal })
    all.push({ hostCount, costs })
    note(`${hostCount} hosts: ${JSON.stringify(costs)}`)
  }
  const keys = Object.keys(UNITS) as (keyof Costs)[]
  const rows = keys.map(key => [key, ...all.map(({ costs }) => String(round(costs[key])))])
  for (const line of table(
    [['hosts', ...hostCounts.map(String)], ...rows],
    hostCounts.map((_, index) => index + 1),
  ))
    note(line)
  const least = hostCounts[0]
  const entries = all.flatMap(({ hostCount, costs }) =>
    keys.map((key): [string, Figure] => {
      const baseline = hostCount === least ? {} : { baseline: `${key}_${least}` }
      return [`${key}_${hostCount}`, { value: costs[key], unit: UNITS[key], aim: null, ...baseline }]
    }),
  )
  return Object.fromEntries(entries)
}

/** Each organization has `vmsEach` instances, spread over all hosts. */
async function measureSize(server: PostgresServer, hostCount: number, { note, signal }: Context): Promise<Costs> {
  await using fleet = await BenchFleet.open(server, hostCount)
  note(`${hostCount} hosts have started`)
  const { key, organizationId } = await fleet.newKey()
  await fleet.seed(organizationId, vmsEach, 'provisioning')
  for (let count = 1; count < hostCount; count += 1) {
    signal.throwIfAborted()
    await fleet.seed(await fleet.newOrganization(), vmsEach, 'provisioning')
  }
  await fleet.settled()
  note(`${hostCount} hosts have ${hostCount * vmsEach} VMs`)
  await Bun.sleep(quietMs)
  const idle = await idleCosts(fleet)
  const hostAt = (index: number) => present(fleet.hosts[index % fleet.hosts.length], 'the fleet has hosts')
  const list = await costOf(fleet, idle, listRuns, async index => (await timedList(hostAt(index), key)).ms)
  const create = await costOf(fleet, idle, createRuns, async index => (await timedCreate(hostAt(index), key)).ms)
  return {
    createMs: create.ms,
    createStatements: create.statements,
    createDatabaseMs: create.databaseMs,
    listMs: list.ms,
    listStatements: list.statements,
    idleStatementsS: idle.statementsS,
    idleDatabaseMsS: idle.databaseMsS,
    idleHostCpuMsS: idle.cpuMsS / hostCount,
  }
}

/** By then every host has reported and read all that there is. */
const quietMs = 3_000

type Idle = { readonly statementsS: number; readonly databaseMsS: number; readonly cpuMsS: number }

async function idleCosts(fleet: BenchFleet): Promise<Idle> {
  const [before, cpuMs, startedMs] = [await fleet.work(), fleet.cpuMs(), performance.now()]
  await Bun.sleep(idleMs)
  const seconds = (performance.now() - startedMs) / 1_000
  const after = await fleet.work()
  return {
    statementsS: (after.statements - before.statements) / seconds,
    databaseMsS: (after.ms - before.ms) / seconds,
    cpuMsS: (fleet.cpuMs() - cpuMs) / seconds,
  }
}

/** One after the other by all hosts; with what follows them, without what the fleet does anyway. */
async function costOf(
  fleet: BenchFleet,
  idle: Idle,
  runs: number,
  request: (index: number) => Promise<number>,
): Promise<{ readonly ms: number; readonly statements: number; readonly databaseMs: number }> {
  const [before, startedMs] = [await fleet.work(), performance.now()]
  const times: number[] = []
  for (let index = 0; index < runs; index += 1) times.push(await request(index))
  await fleet.settled()
  await Bun.sleep(quietMs)
  const seconds = (performance.now() - startedMs) / 1_000
  const after = await fleet.work()
  return {
    ms: median(times),
    statements: (after.statements - before.statements - idle.statementsS * seconds) / runs,
    databaseMs: (after.ms - before.ms - idle.databaseMsS * seconds) / runs,
  }
}
