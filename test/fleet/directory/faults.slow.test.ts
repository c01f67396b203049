// Hosts of a fleet, their database and the ways to it fail at random while clients create and delete; a checker looks
// for what was lost, doubled or left behind. STRONGROOM_FLEET_SEED repeats a run's choices, STRONGROOM_FLEET_FAULTS
// asks for more, STRONGROOM_FLEET_HOSTS and STRONGROOM_FLEET_CLIENTS for another size.

import { expect, test } from 'bun:test'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { createDraw } from '../../rigs/draw.ts'
import { FaultedFleet } from '../../rigs/fleet/faulted-fleet.ts'
import { hasFakeTime, PostgresPair } from '../../rigs/postgres/pair.ts'

const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? Date.now() % 1_000_000)
const faultCount = Number(process.env.STRONGROOM_FLEET_FAULTS ?? 25)
const hostCount = Number(process.env.STRONGROOM_FLEET_HOSTS ?? 3)
const clientCount = Number(process.env.STRONGROOM_FLEET_CLIENTS ?? 5)
const settleMs = 120_000

// Goal: every acknowledged create is there exactly once on every host, no name twice, no delete undone, no VM left
// over.
test.skipIf(skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)'))(
  'random faults',
  async () => {
    process.stdout.write(`STRONGROOM_FLEET_SEED=${seed} STRONGROOM_FLEET_FAULTS=${faultCount}\n`)
    await using databases = await PostgresPair.open()
    await using fleet = await FaultedFleet.open(databases, { hostCount, seed })
    const ended = new AbortController()
    const clients = Array.from({ length: clientCount }, (_, i) => fleet.client(`c${i}`, seed + i + 1, ended.signal))
    const broken = Promise.all(clients)
    for (let count = 0; count < faultCount; count += 1) await Promise.race([fleet.fault(), broken])
    ended.abort()
    await broken

    for (const { proxy } of fleet.hosts) proxy.set('open')
    await fleet.startAll()
    const draw = createDraw(seed)
    const told = (error: Error) => {
      throw new Error([error.message, ...fleet.faults, fleet.lastRefusal, fleet.logs()].join('\n'))
    }
    await until('every create is acknowledged', settleMs, async () => {
      for (const wish of fleet.wishes.filter(({ name }) => name === null)) await fleet.create(wish, draw)
      return fleet.wishes.every(({ name }) => name !== null)
    }).catch(told)
    let unsettled: unknown = null
    await until('everything is settled, and known everywhere', settleMs, async () => {
      const lists = await Promise.all(fleet.hosts.map(host => fleet.list(host)))
      const isSame = new Set(lists.map(list => JSON.stringify(list))).size === 1
      const open = lists.map(list => list.filter(({ status }) => status !== 'ready' && status !== 'terminated'))
      unsettled = { isSame, open }
      return isSame && open.every(list => list.length === 0)
    }).catch(error => told(new Error(`${error.message}: ${JSON.stringify(unsettled)}`)))

    const [list = []] = await Promise.all(fleet.hosts.map(host => fleet.list(host)))
    const names = list.map(({ name }) => name)
    expect(names.toSorted()).toEqual(fleet.wishes.map(({ name }) => name ?? '').toSorted())
    expect(new Set(names).size).toBe(names.length)
    const statuses = new Map(list.map(({ name, status }) => [name, status]))
    for (const { name, isDeleteAccepted } of fleet.wishes) {
      if (isDeleteAccepted) expect([name, statuses.get(name ?? '')]).toEqual([name, 'terminated'])
    }
    const log = await fleet.directoryLog()
    for (const host of fleet.hosts) {
      const records = fleet.recordsOf(host)
      expect(records.log).toEqual(log)
      await until('no VM is left over', settleMs, () => String(fleet.vms(host)) === String(fleet.recordsOf(host).vms))
    }
    const made = `${fleet.wishes.length} instances, ${list.filter(({ status }) => status === 'terminated').length} ended`
    process.stdout.write(`${fleet.faults.length} faults: ${made}\n`)
  },
  900_000 + faultCount * 2_000,
)
