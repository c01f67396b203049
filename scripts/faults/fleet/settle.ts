// After the last fault: waits until everything is settled, and known on every host. Effects: requests to the hosts,
// reads of their files.

import { createDraw } from '../../rigs/draw.ts'
import { sentBytes } from '../../rigs/fleet/ledger-vms.ts'
import { until } from '../../rigs/until.ts'
import type { FleetClients, InstanceRow } from './clients.ts'
import type { UsageRow } from './expected.ts'
import type { FaultedFleet, FleetBudgets } from './faulted-fleet.ts'
import { differences, directoryOf, type HostRecords, recordsOf, thingsDue, thingsOn } from './records.ts'
import { differenceOf } from './same.ts'

export type Run = { readonly fleet: FaultedFleet; readonly clients: FleetClients; readonly budgets: FleetBudgets }

export const settleMs = 120_000
const lastSpend = { key: 'k2', most: 600, tokens: 600, holdMs: 0 }

/** Every answer that is unknown is asked for again, the budget is spent to its end, and all hosts have the same. */
export async function settle({ fleet, clients, budgets }: Run, seed: number): Promise<void> {
  const draw = createDraw(seed)
  const timed = timer(fleet)
  await until('every create is acknowledged', settleMs, async () => {
    for (const wish of clients.wishes.filter(wish => !clients.isCreated(wish))) await clients.create(wish, draw)
    return clients.wishes.every(wish => clients.isCreated(wish))
  })
  timed('every create is acknowledged')
  let count = 0
  await until('the budget is spent', settleMs, async () => {
    count += 1
    const spending = fleet.hosts.map((host, index) => clients.spend(host, `last-${count}-${index}`, lastSpend))
    const statuses = await Promise.all(spending)
    const rows = usageOf(fleet, fleet.hosts.map(recordsOf))
      .flat()
      .filter(({ month }) => month === monthNow())
    const spent = rows.reduce((sum, { cost }) => sum + cost, 0)
    return statuses.every(status => status === 429) && spent > budgets.organization - lastSpend.most
  })
  timed('the budget is spent')
  let unsettled: unknown = null
  await until('everything is settled, and known everywhere', settleMs, async () => {
    // A VM sends once it has been claimed.
    if (!hasSent(fleet)) clients.sendAll()
    // Hosts read egress for these requests, otherwise once a minute.
    await Promise.all(fleet.hosts.map(host => clients.askUsage(host)))
    const directory = await directoryOf(fleet)
    const records = fleet.hosts.map(recordsOf)
    const differing = records.flatMap(({ copied }, index) =>
      differences(directory, copied).map(line => `${fleet.hosts[index]?.name} ${line}`),
    )
    const lists = await Promise.all(fleet.hosts.map(host => clients.list(host)))
    const apart = lists.flatMap(list => differenceOf(list, lists[0]) ?? [])
    const open = lists.flat().filter(row => !isSettled(fleet, clients, row))
    const leftOver = fleet.hosts.flatMap((host, index) => {
      const text = differenceOf(thingsOn(host), thingsDue(records[index] as HostRecords))
      return text === null ? [] : [`${host.name} ${text}`]
    })
    const late = hasSent(fleet) ? lateEgress(fleet, records) : living(fleet)
    unsettled = { apart, differing: differing.slice(0, 20), open, leftOver, late }
    return [apart, differing, open, leftOver, late].every(list => list.length === 0)
  }).catch((error: Error) => {
    throw new Error(`${error.message}: ${JSON.stringify(unsettled)}`)
  })
  timed('everything is settled')
}

function timer({ note }: FaultedFleet): (what: string) => void {
  let sinceMs = performance.now()
  return what => {
    const nowMs = performance.now()
    note(`${what} (${Math.round(nowMs - sinceMs)} ms)`)
    sinceMs = nowMs
  }
}

/** Failed only where a fault ended its VM, or undid its deletion when that had ended it. */
function isSettled({ expected }: FaultedFleet, { wishes }: FleetClients, { name, status }: InstanceRow): boolean {
  if (status !== 'failed') return status === 'ready' || status === 'terminated'
  return expected.mayHaveFailed.has(name) || wishes.some(wish => wish.name === name && wish.isDeleteAsked)
}

/** Rows of each host that it has, or had reported before its records went back. */
export function usageOf({ hosts, expected }: FaultedFleet, records: readonly HostRecords[]): UsageRow[][] {
  return hosts.map(({ name }, index) => [...(records[index]?.usage ?? []), ...(expected.reported.get(name) ?? [])])
}

export const sentOn = ({ hosts }: FaultedFleet) => hosts.flatMap(({ directory }) => sentBytes(directory))
export const hasSent = (fleet: FaultedFleet) => sentOn(fleet).some(({ bytes }) => bytes > 0)
export const living = (fleet: FaultedFleet) => sentOn(fleet).filter(({ hasEnded }) => !hasEnded)

/** Instances that live, and whose record does not say yet what their VM has counted. */
function lateEgress(fleet: FaultedFleet, records: readonly HostRecords[]): string[] {
  const recorded = egressByInstance(records[0] as HostRecords)
  return living(fleet)
    .filter(({ instanceId, bytes }) => recorded.get(instanceId) !== bytes)
    .map(({ instanceId, bytes }) => `${instanceId} ${bytes} ${recorded.get(instanceId)}`)
}

export function egressByInstance({ copied }: HostRecords): Map<string, number> {
  return new Map(
    (copied.get('instances') ?? []).map(line => {
      const [id = '', , , , , , bytes] = line.split(' ')
      return [id, Number(bytes)]
    }),
  )
}

export function monthNow(): string {
  return new Date().toISOString().slice(0, 7)
}
