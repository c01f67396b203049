// Cost of a request and of an idle second as the fleet grows; half of the VMs send. Processor time, not the clock:
// hosts of one machine compete for its cores. Effects: those of the fleets.

import { present } from '../../../src/base/assert.ts'
import { dayMs } from '../../../src/base/time.ts'
import { table } from '../../lib/terminal.ts'
import type { PostgresServer } from '../../rigs/postgres/server.ts'
import type { Figure, Figures } from '../bench-report.ts'
import { median, round } from '../gateway/cost.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet, shown, timedCreate, timedList } from './bench-fleet.ts'

type Context = Pick<BenchContext, 'note' | 'signal'>

const hostCounts = [2, 5, 10, 20, 50, 100]
const vmsEach = 50
/** Hosts of a process: 100 hosts need some 3 GB with the database, and more in processes of their own. */
const hostsEach = 20
const [createRuns, listRuns, retrieveRuns] = [200, 50, 200]
/** As long as hosts read the egress of all instances. */
const idleMs = 60_000
/** A process takes more until its code is compiled. The windows before and after creates, each. */
const [warmUpMs, besideMs] = [15_000, 30_000]

const UNITS = {
  createMs: 'ms',
  createCpuMs: 'ms, all hosts',
  createIdleBeforeCpuMs: 'ms, all hosts idle for as long, before',
  createIdleAfterCpuMs: 'ms, all hosts idle for as long, after',
  createHostCpuMs: 'ms, a host',
  createStatements: '',
  createDatabaseMs: 'ms',
  createWaitMs: 'ms',
  createChangesKb: 'kB',
  listCpuMs: 'ms, all hosts',
  listStatements: '',
  retrieveCpuMs: 'ms, all hosts',
  idleStatementsS: '/s',
  idleDatabaseMsS: 'ms/s',
  idleHostCpuMsS: 'ms/s',
  idleNumberedS: '/s',
  changesMbPerDay: 'MB/day',
  databaseMb: 'MB',
} as const

/**
 * For a request with what follows it, or for a second of the whole fleet. `createWaitMs`: a numbered transaction waits
 * so long for its turn. `createChangesKb`: in `changes`, until the instance is ready.
 */
type Costs = Readonly<Record<keyof typeof UNITS, number>>

export async function measureGrowth(
  server: PostgresServer,
  { note, signal }: Context,
  counts: readonly number[] = hostCounts,
): Promise<Figures> {
  const all: { readonly hostCount: number; readonly costs: Costs }[] = []
  for (const hostCount of counts) {
    signal.throwIfAborted()
    const costs = await measureSize(server, hostCount, { note, signal })
    all.push({ hostCount, costs })
    note(`${hostCount} hosts: ${JSON.stringify(costs)}`)
  }
  const keys = Object.keys(UNITS) as (keyof Costs)[]
  const rows = keys.map(key => [key, ...all.map(({ costs }) => String(round(costs[key])))])
  for (const line of table(
    [['hosts', ...counts.map(String)], ...rows],
    counts.map((_, index) => index + 1),
  ))
    note(line)
  const costsOf = (count: number) => all.find(({ hostCount }) => hostCount === count)?.costs
  const entries = all.flatMap(({ hostCount, costs }) =>
    keys.map((key): [string, Figure] => {
      const baseline = hostCount === counts[0] ? {} : { baseline: `${key}_${counts[0]}` }
      return [`${key}_${hostCount}`, { value: costs[key], unit: UNITS[key], aim: null, ...baseline }]
    }),
  )
  const [least, fifty, hundred] = [costsOf(2), costsOf(50), costsOf(100)]
  return {
    ...Object.fromEntries(entries),
    ...(least === undefined || fifty === undefined
      ? {}
      : { createCostRatio50Hosts: { value: fifty.createCpuMs / least.createCpuMs, unit: '', aim: { atMost: 1.5 } } }),
    ...(hundred === undefined
      ? {}
      : { changesMbPerDay100Hosts: { value: hundred.changesMbPerDay, unit: 'MB/day', aim: { atMost: 200 } } }),
  }
}

/** Each organization has `vmsEach` instances, spread over all hosts. */
async function measureSize(server: PostgresServer, hostCount: number, { note, signal }: Context): Promise<Costs> {
  await using fleet = await BenchFleet.open(server, hostCount, hostsEach)
  note(`${hostCount} hosts have started`)
  const { key, organizationId } = await fleet.newKey()
  await fleet.seed(organizationId, vmsEach, 'provisioning')
  for (let count = 1; count < hostCount; count += 1) {
    signal.throwIfAborted()
    await fleet.seed(await fleet.newOrganization(), vmsEach, 'provisioning')
  }
  await fleet.settled()
  note(`${hostCount} hosts have ${hostCount * vmsEach} VMs`)
  const hostAt = (index: number) => present(fleet.hosts[index % fleet.hosts.length], 'the fleet has hosts')
  let name = ''
  const create = await createCosts(fleet, async index => {
    const made = await timedCreate(hostAt(index), key)
    name = made.shown.name
    return made.ms
  })
  for (const send of new Map(fleet.hosts.map(({ pid, send }) => [pid, send])).values()) send()
  await Bun.sleep(quietMs)
  const idle = await idleCosts(fleet, idleMs)
  const list = await costOf(fleet, idle, listRuns, async index => (await timedList(hostAt(index), key)).ms)
  const retrieve = await costOf(fleet, idle, retrieveRuns, async index => {
    await shown(hostAt(index), key, name)
    return 0
  })
  return {
    createMs: create.ms,
    createCpuMs: create.cpuMs,
    createIdleBeforeCpuMs: create.idleCpuMs?.[0] ?? 0,
    createIdleAfterCpuMs: create.idleCpuMs?.[1] ?? 0,
    createHostCpuMs: create.cpuMs / hostCount,
    createStatements: create.statements,
    createDatabaseMs: create.databaseMs,
    createWaitMs: create.waitMs,
    createChangesKb: create.changesBytes / 1e3,
    listCpuMs: list.cpuMs,
    listStatements: list.statements,
    retrieveCpuMs: retrieve.cpuMs,
    idleStatementsS: idle.statementsS,
    idleDatabaseMsS: idle.databaseMsS,
    idleHostCpuMsS: idle.cpuMsS / hostCount,
    idleNumberedS: idle.numberedS,
    changesMbPerDay: (idle.changesBytesS * dayMs) / 1e9,
    databaseMb: (await fleet.databaseBytes()) / 1e6,
  }
}

/** By then every host has reported and read all that there is. */
const quietMs = 3_000

type Idle = {
  readonly statementsS: number
  readonly databaseMsS: number
  readonly cpuMsS: number
  readonly numberedS: number
  readonly changesBytesS: number
}

/**
 * Before VMs send, and against idle windows on both sides: 50 idle hosts take more of a processor in the time of a
 * create than the create does, and a window of another minute differs by more than its cost.
 */
async function createCosts(fleet: BenchFleet, request: (index: number) => Promise<number>): Promise<RequestCosts> {
  await Bun.sleep(warmUpMs)
  const before = await idleCosts(fleet, besideMs)
  const gross = await costOf(fleet, NO_IDLE, createRuns, request)
  const after = await idleCosts(fleet, besideMs)
  const seconds = gross.seconds / createRuns
  const mean = (key: keyof Idle) => ((before[key] + after[key]) / 2) * seconds
  return {
    ...gross,
    cpuMs: gross.cpuMs - mean('cpuMsS'),
    statements: gross.statements - mean('statementsS'),
    databaseMs: gross.databaseMs - mean('databaseMsS'),
    idleCpuMs: [before.cpuMsS * seconds, after.cpuMsS * seconds],
  }
}

async function idleCosts(fleet: BenchFleet, windowMs: number): Promise<Idle> {
  const [version, before, cpuMs, startedMs] = [
    await fleet.version(),
    await fleet.work(),
    fleet.cpuMs(),
    performance.now(),
  ]
  await Bun.sleep(windowMs)
  const seconds = (performance.now() - startedMs) / 1_000
  const after = await fleet.work()
  return {
    statementsS: (after.statements - before.statements) / seconds,
    databaseMsS: (after.ms - before.ms) / seconds,
    cpuMsS: (fleet.cpuMs() - cpuMs) / seconds,
    numberedS: ((await fleet.version()) - version) / seconds,
    changesBytesS: (await fleet.changesBytes(version)) / seconds,
  }
}

const NO_IDLE: Idle = { statementsS: 0, databaseMsS: 0, cpuMsS: 0, numberedS: 0, changesBytesS: 0 }

type RequestCosts = {
  /** Time of all requests together and of the work that follows them. */
  readonly seconds: number
  readonly ms: number
  readonly cpuMs: number
  readonly statements: number
  readonly databaseMs: number
  readonly waitMs: number
  readonly changesBytes: number
  /** Processor time of all hosts, idle for as long as a request took: in the window before, and in the one after. */
  readonly idleCpuMs?: readonly [number, number]
}

/** One after the other by all hosts; with what follows them, without what the fleet does anyway. */
async function costOf(
  fleet: BenchFleet,
  idle: Idle,
  runs: number,
  request: (index: number) => Promise<number>,
): Promise<RequestCosts> {
  const [version, before, cpuMs, startedMs] = [
    await fleet.version(),
    await fleet.work(),
    fleet.cpuMs(),
    performance.now(),
  ]
  const times: number[] = []
  for (let index = 0; index < runs; index += 1) times.push(await request(index))
  await fleet.settled()
  await Bun.sleep(quietMs)
  const seconds = (performance.now() - startedMs) / 1_000
  const after = await fleet.work()
  return {
    seconds,
    ms: median(times),
    cpuMs: (fleet.cpuMs() - cpuMs - idle.cpuMsS * seconds) / runs,
    statements: (after.statements - before.statements - idle.statementsS * seconds) / runs,
    databaseMs: (after.ms - before.ms - idle.databaseMsS * seconds) / runs,
    waitMs: (after.waitMs - before.waitMs) / Math.max(1, after.turns - before.turns),
    changesBytes: (await fleet.changesBytes(version)) / runs,
  }
}
