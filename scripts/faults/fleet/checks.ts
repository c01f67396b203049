// Checks of a fleet that has settled: nothing acknowledged is lost, doubled or left behind. Effects: requests to the
// hosts, reads of their files.

import { until } from '../../rigs/until.ts'
import { type HostRecords, recordsOf, sumsOf, thingsDue, thingsOn } from './records.ts'
import { same } from './same.ts'
import { egressByInstance, hasSent, living, monthNow, type Run, sentOn, settleMs, usageOf } from './settle.ts'

/** Returns lines that say what was checked. Throws at the first finding. */
export async function checkFleet(run: Run): Promise<string[]> {
  const { fleet, clients } = run
  await checkInstances(run)
  same('copies that differed from the directory', fleet.wrongCopies(), [])
  const records = fleet.hosts.map(recordsOf)
  for (const [index, host] of fleet.hosts.entries()) {
    const own = records[index] as HostRecords
    same(`VMs of ${host.name} that are to be ended`, own.leftVms, 0)
    same(`things of ${host.name}`, thingsOn(host), thingsDue(own))
  }
  checkAddresses(records)
  checkEgress(run, records)
  const spent = checkUsage(run, records)
  const passed = await checkPeers(run)
  const { wishes } = clients
  return [
    `${wishes.length} instances, ${wishes.filter(wish => clients.isDeleted(wish)).length} ended`,
    `${spent}; ${passed}`,
    `answers ${JSON.stringify(Object.fromEntries([...clients.answers].toSorted()))}`,
  ]
}

async function checkInstances({ fleet, clients }: Run): Promise<void> {
  const [list = []] = await Promise.all(fleet.hosts.map(host => clients.list(host)))
  const names = list.map(({ name }) => name)
  same('names', names.toSorted(), clients.wishes.map(({ name }) => name ?? '').toSorted())
  same('different names', new Set(names).size, names.length)
  const statuses = new Map(list.map(({ name, status }) => [name, status]))
  for (const wish of clients.wishes) {
    const name = wish.name ?? ''
    const status = statuses.get(name)
    if (clients.isDeleted(wish)) same(name, status, 'terminated')
    else if (!wish.isDeleteAsked && !fleet.expected.mayHaveFailed.has(name)) same(name, status, 'ready')
  }
  const withVm = fleet.hosts.flatMap(host => recordsOf(host).vms.map(({ name }) => name))
  const ready = names.filter(name => statuses.get(name) === 'ready')
  same('instances with a VM', withVm.toSorted(), ready.toSorted())
}

/** A living instance's name leads to the address that its VM alone has. */
function checkAddresses(records: readonly HostRecords[]): void {
  const held = records.flatMap(({ vms, things }) =>
    vms.map(({ instanceId, vmId }) => `${instanceId} ${things.get(vmId)?.address}`),
  )
  for (const { addresses } of records) {
    same('addresses', [...addresses].map(pair => pair.join(' ')).toSorted(), held.toSorted())
    same('different addresses', new Set(addresses.values()).size, addresses.size)
  }
}

/** A record lacks at most what its VM sent between its last sample and its end, and has nothing twice. */
function checkEgress({ fleet }: Run, records: readonly HostRecords[]): void {
  const recorded = egressByInstance(records[0] as HostRecords)
  const sent = sentOn(fleet)
  const ids = new Set(sent.map(({ instanceId }) => instanceId))
  if (!fleet.expected.mayHaveMoved) same('instances that sent', ids.size, sent.length)
  for (const { instanceId, bytes, hasEnded } of sent) {
    const had = recorded.get(instanceId) ?? -1
    const most = Math.max(...sent.filter(other => other.instanceId === instanceId).map(other => other.bytes))
    same(`egress of ${instanceId}`, had, hasEnded ? Math.min(had, most) : bytes)
  }
  // Unless the clients have ended every instance before one could send.
  same('some VM has sent', hasSent(fleet) || living(fleet).length === 0, true)
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
function checkUsage({ fleet, clients, budgets }: Run, records: readonly HostRecords[]): string {
  const byHosts = usageOf(fleet, records)
  const rows = byHosts.flat()
  const byId = new Map(rows.map(row => [row.id, row]))
  same('different rows of usage', byId.size, rows.length)
  for (const { id, key, cost } of rows) {
    const spending = clients.spendings.get(id)
    same(id, [spending?.key, spending?.tokens], [key, cost])
  }
  for (const [id, { outcome }] of clients.spendings) {
    if (outcome !== 'unknown' && !fleet.expected.unreported.has(id)) same(id, byId.has(id), outcome === 'booked')
  }
  const due = new Map(byHosts.flatMap((usage, index) => [...sumsOf(fleet.hosts[index]?.id ?? '', usage)]))
  for (const { sums } of records)
    same('sums of usage', new Map([...byHost(sums)].toSorted()), new Map([...due].toSorted()))
  const cost = (month: string, key: string | null) =>
    rows.filter(row => row.month === month && (key === null || row.key === key)).reduce((sum, row) => sum + row.cost, 0)
  for (const month of new Set(rows.map(row => row.month))) {
    same(`${month}, the key's budget`, Math.max(budgets.k1, cost(month, 'k1')), budgets.k1)
    same(`${month}, the organization's`, Math.max(budgets.organization, cost(month, null)), budgets.organization)
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
    return peers.every(
      ({ reach }) => reach.length === fleet.hosts.length - 1 && reach.every(({ isReached }) => isReached),
    )
  })
  return `${peers.reduce((sum, { calls }) => sum + calls.answered, 0)} requests passed on since the last starts`
}
