// Five hosts: creates at once, a long list, a host's death, names, idle statements. Effects: those of the fleet.

import { present } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import type { PostgresServer } from '../../rigs/postgres/server.ts'
import { until } from '../../rigs/until.ts'
import type { Figures } from '../bench-report.ts'
import { median, percentile, round } from '../gateway/cost.ts'
import { wallMs } from '../gateway/wire.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet, type BenchHost, shown, timedCreate, timedList } from './bench-fleet.ts'

type Context = Pick<BenchContext, 'note' | 'signal'>

const hostCount = 5
const [createsAtOnce, warmRounds, createRounds] = [50, 16, 12]
const [recordCount, listRuns] = [10_000, 40]
const nameRuns = 20
const deaths = 3
const idleMs = 20_000
const lostAfterMs = 10_000
const waitMs = 60_000

export async function measureFive(server: PostgresServer, context: Context): Promise<Figures> {
  await using fleet = await BenchFleet.open(server, hostCount)
  const { key } = await fleet.newKey()
  const creates = await measureCreates(fleet, key, context)
  const idle = await measureIdle(fleet)
  context.note(`idle: ${round(idle)} statements a second for each host`)
  const names = await measureNames(fleet, key, context)
  const list = await measureList(fleet, context)
  const death = await measureDeath(fleet, key, context)
  const databaseStatementsPerIdleHostS = { value: idle, unit: '/s', aim: { atMost: 3 } }
  return { ...creates, ...list, ...death, ...names, databaseStatementsPerIdleHostS }
}

/**
 * At once over all hosts, round after round; what came before is ready by then. Hosts that are up for a while have run
 * this code often: the rounds that count come after some that do not, whose first has a figure of its own. Beside it,
 * one after the other.
 */
async function measureCreates(fleet: BenchFleet, key: string, { note, signal }: Context): Promise<Figures> {
  const seen: number[] = []
  const first: number[] = []
  for (let turn = -warmRounds; turn < createRounds; turn += 1) {
    signal.throwIfAborted()
    const [before, cpuMs] = [await fleet.work(), fleet.cpuMs()]
    const made = await Promise.all(
      Array.from({ length: createsAtOnce }, (_, index) => timedCreate(hostAt(fleet, index), key)),
    )
    const hostsCpuMs = fleet.cpuMs() - cpuMs
    const after = await fleet.work()
    const times = made.map(({ ms }) => ms)
    if (turn >= 0) seen.push(...times)
    if (turn === -warmRounds) first.push(...times)
    const [p50, p99] = [percentile(times, 0.5), percentile(times, 0.99)].map(value => round(value))
    const spent = `${after.statements - before.statements} statements, ${round(after.ms - before.ms)} ms of the database`
    note(`${createsAtOnce} creates at once: p50 ${p50}, p99 ${p99} ms; hosts ${round(hostsCpuMs)} ms; ${spent}`)
    await fleet.settled()
  }
  const alone: number[] = []
  for (let index = 0; index < createsAtOnce; index += 1) {
    alone.push((await timedCreate(hostAt(fleet, index), key)).ms)
    await fleet.settled()
  }
  return {
    createP99Ms: { value: percentile(seen, 0.99), unit: 'ms', aim: { atMost: 60 }, baseline: 'createAloneP50Ms' },
    createFirstRoundP99Ms: { value: percentile(first, 0.99), unit: 'ms', aim: null, baseline: 'createAloneP50Ms' },
    createP50Ms: { value: percentile(seen, 0.5), unit: 'ms', aim: null, baseline: 'createAloneP50Ms' },
    createAloneP50Ms: { value: percentile(alone, 0.5), unit: 'ms', aim: null },
  }
}

/** Records that are over, on every host; by any host, unchanged and after a change by another one. */
async function measureList(fleet: BenchFleet, { note, signal }: Context): Promise<Figures> {
  const { key, organizationId } = await fleet.newKey()
  await fleet.seed(organizationId, recordCount, 'terminated')
  for (const host of fleet.hosts) {
    await until('the host lists them all', waitMs, async () => {
      const { bytes } = await timedList(host, key)
      return Buffer.from(bytes).toString().split('"hostname"').length > recordCount
    })
  }
  const { bytes } = await timedList(hostAt(fleet, 0), key)
  await using constant = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response(bytes) })
  const constantHost = { ...hostAt(fleet, 0), url: constant.url.origin }
  note(`a list of ${recordCount} records: ${bytes.length} bytes`)
  const many = async (hostOf: (index: number) => BenchHost, before: (index: number) => Promise<unknown>) => {
    const seen: number[] = []
    for (let index = 0; index < listRuns; index += 1) {
      signal.throwIfAborted()
      await before(index)
      seen.push((await timedList(hostOf(index), key)).ms)
    }
    return median(seen)
  }
  const byTurns = (index: number) => hostAt(fleet, index)
  const unchangedMs = await many(byTurns, async () => {})
  const changedMs = await many(byTurns, index => timedCreate(hostAt(fleet, index + 1), key))
  const constantMs = await many(
    () => constantHost,
    async () => {},
  )
  await fleet.settled()
  return {
    listMs10000: { value: unchangedMs, unit: 'ms', aim: { atMost: 30 }, baseline: 'constantBodyMs' },
    listAfterChangeMs10000: { value: changedMs, unit: 'ms', aim: null, baseline: 'constantBodyMs' },
    constantBodyMs: { value: constantMs, unit: 'ms', aim: null },
  }
}

/** From the instance's `ready_at` until the last host knows its address. */
async function measureNames(fleet: BenchFleet, key: string, { note, signal }: Context): Promise<Figures> {
  const seen: number[] = []
  for (let turn = 0; turn < nameRuns; turn += 1) {
    signal.throwIfAborted()
    const host = hostAt(fleet, turn)
    const { name, hostname } = (await timedCreate(host, key)).shown
    const namedAtMs = await Promise.all(fleet.hosts.map(other => other.namedAtMs(hostname)))
    await until(`${name} is ready`, waitMs, async () => (await shown(host, key, name)).status === 'ready')
    const { ready_at: readyAt } = await shown(host, key, name)
    seen.push(Math.max(...namedAtMs) - Date.parse(readyAt ?? ''))
  }
  note(`names everywhere, ms after ready: p50 ${round(percentile(seen, 0.5))}, most ${round(Math.max(...seen))}`)
  return {
    dnsEverywhereMs: { value: Math.max(...seen), unit: 'ms', aim: { atMost: 1_000 } },
    dnsEverywhereMsP50: { value: percentile(seen, 0.5), unit: 'ms', aim: null },
  }
}

/** From SIGKILL until the fleet's state says so; and until its instances have failed, after `lostAfterMs` more. */
async function measureDeath(fleet: BenchFleet, key: string, { note, signal }: Context): Promise<Figures> {
  const admin = createFleetAdmin({ postgres: fleet.postgres, hostId: null, clock: systemClock })
  // With the shortest time that the database grants, on all hosts.
  for (const host of [...fleet.hosts]) {
    await fleet.kill(host)
    await fleet.start(host.name, lostAfterMs)
  }
  const seen: number[] = []
  const failed: number[] = []
  for (let turn = 0; turn < deaths; turn += 1) {
    signal.throwIfAborted()
    const [host, other] = [hostAt(fleet, 0), hostAt(fleet, 1)]
    const stateOf = async () => (await admin.show(host.name)).state
    await until('the host serves', waitMs, async () => (await stateOf()) === 'serving')
    const names = await namesOn(fleet, host)
    const diedMs = wallMs()
    await fleet.kill(host)
    await until('its death is seen', waitMs, async () => (await stateOf()) === 'silent')
    seen.push(wallMs() - diedMs)
    const name = names[0]
    if (turn === 0 && name !== undefined) {
      await until(
        'its instances have failed',
        waitMs,
        async () => (await shown(other, key, name)).failure_code === 'host_lost',
      )
      failed.push(wallMs() - diedMs)
    }
    note(`${host.name} died: seen after ${round(seen.at(-1) ?? 0)} ms`)
    await fleet.start(host.name, lostAfterMs)
  }
  return {
    hostDeathSeenMs: { value: Math.max(...seen), unit: 'ms', aim: { atMost: 10_000 } },
    hostLostMs: { value: Math.max(...failed), unit: `ms, of ${lostAfterMs} that silence may last`, aim: null },
  }
}

async function namesOn(fleet: BenchFleet, { hostId }: BenchHost): Promise<string[]> {
  const rows = await fleet.postgres.query<{ name: string }>(
    "SELECT name FROM instances WHERE host_id = $1 AND status = 'ready' AND organization_id = 'o1' LIMIT 1",
    [hostId],
  )
  return rows.map(({ name }) => name)
}

/** Statements a second of each host. */
async function measureIdle(fleet: BenchFleet): Promise<number> {
  const before = await fleet.work()
  await Bun.sleep(idleMs)
  return ((await fleet.work()).statements - before.statements) / (idleMs / 1_000) / fleet.hosts.length
}

function hostAt({ hosts }: BenchFleet, index: number): BenchHost {
  return present(hosts[index % hosts.length], 'the fleet has hosts')
}
