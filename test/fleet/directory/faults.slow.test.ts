// Hosts of a fleet, their database, their clocks and the ways between them fail at random while clients create, delete
// and spend; a checker looks for what was lost, doubled or left behind. STRONGROOM_FLEET_SEED repeats a run's choices,
// STRONGROOM_FLEET_FAULTS asks for more, STRONGROOM_FLEET_HOSTS and STRONGROOM_FLEET_CLIENTS for another size.

import { expect, test } from 'bun:test'
import { FleetClients } from '../../../scripts/faults/fleet/clients.ts'
import { FaultedFleet } from '../../../scripts/faults/fleet/faulted-fleet.ts'
import {
  differences,
  directoryOf,
  type HostRecords,
  recordsOf,
  sumsOf,
  thingsDue,
  thingsOn,
} from '../../../scripts/faults/fleet/records.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { sentBytes } from '../../../scripts/rigs/fleet/ledger-vms.ts'
import { hasFakeTime, PostgresPair } from '../../../scripts/rigs/postgres/pair.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? Date.now() % 1_000_000)
const faultCount = Number(process.env.STRONGROOM_FLEET_FAULTS ?? (runsAll ? 25 : 5))
const hostCount = Number(process.env.STRONGROOM_FLEET_HOSTS ?? 3)
const clientCount = Number(process.env.STRONGROOM_FLEET_CLIENTS ?? 5)
const settleMs = 120_000
/** Less than the clients of a run want to spend. */
const budgets = { k1: 2_000 + 6 * faultCount * clientCount, organization: 4_000 + 16 * faultCount * clientCount }
const lastSpend = { key: 'k2', most: 600, tokens: 600, holdMs: 0 }

type Run = { readonly fleet: FaultedFleet; readonly clients: FleetClients }

// Goal: every acknowledged create is there exactly once on every host, no name twice, no delete undone, no VM, tap or
// address left over or given twice, no cent of usage and no byte of egress lost or double, no budget passed.
test.skipIf(skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)'))(
  'random faults',
  async () => {
    process.stdout.write(`STRONGROOM_FLEET_SEED=${seed} STRONGROOM_FLEET_FAULTS=${faultCount}\n`)
    const startedMs = performance.now()
    await using databases = await PostgresPair.open()
    await using fleet = await FaultedFleet.open(databases, { hostCount, seed, budgets })
    const clients = new FleetClients(fleet, clientCount)
    const run = { fleet, clients }
    await faultsAndClients(run)
    const tookS = Math.round((performance.now() - startedMs) / 1_000)
    await fleet.healAll()
    await settle(run).catch((error: Error) => {
      throw new Error([error.message, ...fleet.faults, clients.lastRefusal, fleet.logs()].join('\n'))
    })
    await checkInstances(run)
    expect(fleet.wrongCopies()).toEqual([])
    const records = fleet.hosts.map(recordsOf)
    for (const [index, host] of fleet.hosts.entries()) {
      const own = records[index] as HostRecords
      expect([host.name, own.leftVms]).toEqual([host.name, 0])
      expect([host.name, thingsOn(host)]).toEqual([host.name, thingsDue(own)])
    }
    checkAddresses(records)
    checkEgress(run, records)
    const spent = checkUsage(run, records)
    const passed = await checkPeers(run)
    const { wishes } = clients
    const told = [
      `${fleet.faults.length} faults in ${tookS} s, ${hostCount} hosts, ${clientCount} clients`,
      `${wishes.length} instances, ${wishes.filter(wish => wish.isDeleteAccepted).length} ended`,
      `${spent}; ${passed}; checked after ${Math.round((performance.now() - startedMs) / 1_000) - tookS} s`,
      `answers ${JSON.stringify(Object.fromEntries([...clients.answers].toSorted()))}`,
    ]
    process.stdout.write(`${told.join('\n')}\n`)
  },
  900_000 + faultCount * 2_000,
)

async function faultsAndClients({ fleet, clients }: Run): Promise<void> {
  const ended = new AbortController()
  const running = Array.from({ length: clientCount }, (_, i) => clients.run(`c${i}`, seed + i + 1, ended.signal))
  const broken = Promise.all(running)
  for (let count = 0; count < faultCount; count += 1) {
    await Promise.race([fleet.fault(), broken])
    if (count % 100 === 99) process.stdout.write(`${count + 1} faults, ${clients.wishes.length} creates\n`)
  }
  ended.abort()
  await broken
}

/** Every answer that is unknown is asked for again, the budget is spent to its end, and all hosts have the same. */
async function settle({ fleet, clients }: Run): Promise<void> {
  const draw = createDraw(seed)
  await until('every create is acknowledged', settleMs, async () => {
    for (const wish of clients.wishes.filter(({ name }) => name === null)) await clients.create(wish, draw)
    return clients.wishes.every(({ name }) => name !== null)
  })
  let count = 0
  await until('the budget is spent', settleMs, async () => {
    count += 1
    const spending = fleet.hosts.map((host, index) => clients.spend(host, `last-${count}-${index}`, lastSpend))
    const statuses = await Promise.all(spending)
    const rows = fleet.hosts.flatMap(host => recordsOf(host).usage).filter(({ month }) => month === monthNow())
    const spent = rows.reduce((sum, { cost }) => sum + cost, 0)
    return statuses.every(status => status === 429) && spent > budgets.organization - lastSpend.most
  })
  let unsettled: unknown = null
  await until('everything is settled, and known everywhere', settleMs, async () => {
    // A VM sends once it has been claimed.
    if (!hasSent(fleet)) clients.sendAll()
    const directory = await directoryOf(fleet)
    const records = fleet.hosts.map(recordsOf)
    const differing = records.flatMap(({ copied }) => differences(directory, copied))
    const lists = await Promise.all(fleet.hosts.map(host => clients.list(host)))
    const isSame = new Set(lists.map(list => JSON.stringify(list))).size === 1
    const open = lists.flat().filter(({ status }) => status !== 'ready' && status !== 'terminated')
    const leftOver = fleet.hosts.filter(
      (host, index) => JSON.stringify(thingsOn(host)) !== JSON.stringify(thingsDue(records[index] as HostRecords)),
    )
    const late = hasSent(fleet) ? lateEgress(fleet, records) : living(fleet)
    unsettled = { isSame, differing: differing.slice(0, 20), open, leftOver: leftOver.map(({ name }) => name), late }
    return isSame && [differing, open, leftOver, late].every(list => list.length === 0)
  }).catch((error: Error) => {
    throw new Error(`${error.message}: ${JSON.stringify(unsettled)}`)
  })
}

async function checkInstances({ fleet, clients }: Run): Promise<void> {
  const [list = []] = await Promise.all(fleet.hosts.map(host => clients.list(host)))
  const names = list.map(({ name }) => name)
  expect(names.toSorted()).toEqual(clients.wishes.map(({ name }) => name ?? '').toSorted())
  expect(new Set(names).size).toBe(names.length)
  const statuses = new Map(list.map(({ name, status }) => [name, status]))
  for (const { name, isDeleteAsked, isDeleteAccepted } of clients.wishes) {
    const status = statuses.get(name ?? '')
    if (isDeleteAccepted) expect([name, status]).toEqual([name, 'terminated'])
    if (!isDeleteAsked) expect([name, status]).toEqual([name, 'ready'])
  }
}

/** A living instance's name leads to the address that its VM alone has. */
function checkAddresses(records: readonly HostRecords[]): void {
  const held = records.flatMap(({ vms, things }) =>
    vms.map(({ instanceId, vmId }) => `${instanceId} ${things.get(vmId)?.address}`),
  )
  for (const { addresses } of records) {
    expect([...addresses].map(pair => pair.join(' ')).toSorted()).toEqual(held.toSorted())
    expect(new Set(addresses.values()).size).toBe(addresses.size)
  }
}

const sentOn = ({ hosts }: FaultedFleet) => hosts.flatMap(({ directory }) => sentBytes(directory))
const hasSent = (fleet: FaultedFleet) => sentOn(fleet).some(({ bytes }) => bytes > 0)
const living = (fleet: FaultedFleet) => sentOn(fleet).filter(({ hasEnded }) => !hasEnded)

/** Instances that live, and whose record does not say yet what their VM has counted. */
function lateEgress(fleet: FaultedFleet, records: readonly HostRecords[]): string[] {
  const recorded = egressByInstance(records[0] as HostRecords)
  return living(fleet)
    .filter(({ instanceId, bytes }) => recorded.get(instanceId) !== bytes)
    .map(({ instanceId, bytes }) => `${instanceId} ${bytes} ${recorded.get(instanceId)}`)
}

function egressByInstance({ copied }: HostRecords): Map<string, number> {
  return new Map(
    (copied.get('instances') ?? []).map(line => {
      const [id = '', , , , , , bytes] = line.split(' ')
      return [id, Number(bytes)]
    }),
  )
}

/** A record lacks at most what its VM sent between its last sample and its end, and has nothing twice. */
function checkEgress({ fleet }: Run, records: readonly HostRecords[]): void {
  const recorded = egressByInstance(records[0] as HostRecords)
  const sent = sentOn(fleet)
  expect(new Set(sent.map(({ instanceId }) => instanceId)).size).toBe(sent.length)
  for (const { instanceId, bytes, hasEnded } of sent) {
    const had = recorded.get(instanceId) ?? -1
    expect([instanceId, had]).toEqual([instanceId, hasEnded ? Math.min(had, bytes) : bytes])
  }
  // Unless the clients have ended every instance before one could send.
  expect(hasSent(fleet) || living(fleet).length === 0).toBe(true)
}

/** Sums of all starts of a host together: the number of the start follows the host's id. */
function byHost(sums: HostRecords['sums']): HostRecords['sums'] {
  const together = new Map<string, { cost: number; requests: number }>()
  for (const [name, { cost, requests }] of sums) {
    const host = name.replace(/\/[0-9a-f]{16}$/, '')
    const had = together.get(host) ?? { cost: 0, requests: 0 }
    together.set(host, { cost: had.cost + cost, requests: had.requests + requests })
  }
  return together
}

/** Rows are what was acknowledged, and of what has no answer each once or not at all; sums are those of the rows. */
function checkUsage({ fleet, clients }: Run, records: readonly HostRecords[]): string {
  const rows = records.flatMap(({ usage }) => usage)
  const byId = new Map(rows.map(row => [row.id, row]))
  expect(byId.size).toBe(rows.length)
  for (const { id, key, cost } of rows) {
    const spending = clients.spendings.get(id)
    expect([id, spending?.key, spending?.tokens]).toEqual([id, key, cost])
  }
  for (const [id, { outcome }] of clients.spendings) {
    if (outcome !== 'unknown') expect([id, byId.has(id)]).toEqual([id, outcome === 'booked'])
  }
  const due = new Map(
    records.flatMap(({ usage }, index) => [...sumsOf(fleet.hosts[index]?.process?.hostId ?? '', usage)]),
  )
  for (const { sums } of records) expect(new Map([...byHost(sums)].toSorted())).toEqual(new Map([...due].toSorted()))
  const cost = (month: string, key: string | null) =>
    rows.filter(row => row.month === month && (key === null || row.key === key)).reduce((sum, row) => sum + row.cost, 0)
  for (const month of new Set(rows.map(row => row.month))) {
    expect([month, Math.max(budgets.k1, cost(month, 'k1'))]).toEqual([month, budgets.k1])
    expect([month, Math.max(budgets.organization, cost(month, null))]).toEqual([month, budgets.organization])
  }
  const lost = [...clients.spendings.values()].filter(({ outcome }) => outcome === 'unknown').length
  return `${rows.length} rows of usage, ${cost(monthNow(), null)} of ${budgets.organization} spent, ${lost} without an answer`
}

/** All reach one another again, and requests were passed on. */
async function checkPeers({ fleet }: Run): Promise<string> {
  type Peers = { readonly reach: { readonly isReached: boolean }[]; readonly calls: { readonly answered: number } }
  let peers: Peers[] = []
  await until('all hosts reach one another', settleMs, async () => {
    peers = await Promise.all(
      fleet.hosts.map(async host => (await (await fetch(`${host.process?.booksUrl}/peers`)).json()) as Peers),
    )
    return peers.every(({ reach }) => reach.length === hostCount - 1 && reach.every(({ isReached }) => isReached))
  })
  return `${peers.reduce((sum, { calls }) => sum + calls.answered, 0)} requests passed on since the last starts`
}

function monthNow(): string {
  return new Date().toISOString().slice(0, 7)
}
