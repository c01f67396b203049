// An instance that fails before it is ready, on a host with others that may take it. Scripted VM engine and directory,
// real SQLite.

import { expect, test } from 'bun:test'
import { until } from '../../scripts/rigs/until.ts'
import { Fault } from '../../src/base/fault.ts'
import { INSTANCE_FAILURES } from '../../src/contract/http/instance.ts'
import {
  IS_WORTH_ANOTHER_HOST,
  type RestartVerdict,
  restartOnOtherHost,
} from '../../src/instances/restart-on-other-host.ts'
import type { Placement, PlacementQuery } from '../../src/store/db.ts'
import { giveToHost, listLeftVms } from '../../src/store/directory/attempt.query.ts'
import { moveInstance } from '../../src/store/directory/instance.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { withHosts } from '../rigs/fleet/with-hosts.ts'
import { provisioningBench as bench } from '../rigs/instances/provisioning-bench.ts'

const refused = () => Promise.reject(new Fault('channel.refused', 'no'))

/** A daemon whose VM takes no claim. */
function failing(outcome: () => Promise<RestartVerdict>) {
  const asked: string[] = []
  const made = bench({ claim: refused })
  const daemon = made.start({}, undefined, (instance, code) => {
    asked.push(`${instance.id} ${code}`)
    return outcome()
  })
  return { ...made, daemon, asked }
}

// Goal: every failure says whether another host may do better; what the image or we ourselves did wrong may not.
test('which failures are worth another host', () => {
  expect(Object.keys(IS_WORTH_ANOTHER_HOST).sort()).toEqual(Object.keys(INSTANCE_FAILURES).sort())
  const not = Object.entries(IS_WORTH_ANOTHER_HOST).filter(([, isWorth]) => !isWorth)
  expect(not.map(([code]) => code)).toEqual(['launch_mismatch', 'host_restored', 'internal'])
})

// Goal: a host that gave an instance on does not fail it, and says so in its journal.
test('given to another host', async () => {
  const { daemon, asked, clock, instance, store } = failing(async () => ({ kind: 'given', hostId: 'other' }))
  daemon.wake('instance')
  for (let count = 0; count < 20 && asked.length === 0; count += 1) await clock.elapse(100)
  expect(asked).toEqual(['instance claim_failed'])
  expect(instance()).toMatchObject({ status: 'provisioning', failureCode: null })
  expect(listEvents(store.ledger.db, { subject: 'instance', limit: 9 }).map(({ kind }) => kind)).toEqual([
    'instance.given',
  ])
})

// Goal: an instance that no other host takes fails as on a single host.
test('no other host', async () => {
  const { daemon, provisioned, instance, asked } = failing(async () => ({ kind: 'stays' }))
  daemon.wake('instance')
  await provisioned()
  expect([asked.length, instance().status, instance().failureCode]).toEqual([1, 'failed', 'claim_failed'])
})

// Goal: without an answer nothing is decided; it is asked again until there is one.
test('nobody answers', async () => {
  let count = 0
  const { daemon, provisioned, instance } = failing(async () => {
    count += 1
    if (count < 3) throw new Fault('fleet.unavailable', 'away')
    return { kind: 'stays' }
  })
  daemon.wake('instance')
  await provisioned(500)
  expect([count, instance().failureCode]).toEqual([3, 'claim_failed'])
})

// Goal: a host that claims while the instance is given away neither opens its VM nor makes the other host's ready.
test('given away during the claim', async () => {
  const made = bench()
  const { store, instance, clock, steps, ready } = made
  const daemon = made.start({
    evidence: async (...asked) => {
      const to = { id: 'instance', from: store.hostId, to: 'other', nowMs: clock.nowMs() }
      store.directory.transact(tx => giveToHost(tx, to))
      return await made.engine.evidence(...asked)
    },
  })
  daemon.wake('instance')
  await until('given away', 10_000, async () => {
    await clock.elapse(20)
    return instance().attempt === 2
  })
  for (let count = 0; count < 200; count += 1) await clock.elapse(20)
  expect(instance()).toMatchObject({ hostId: 'other', attempt: 2, status: 'provisioning' })
  expect(ready).toEqual([])
  expect(steps).not.toContain('open')
})

// Goal: an instance is given on once, never back, and never once it is ready, failed or deleted.
test('once, and only before it is ready', async () => {
  const { store, instance, clock } = bench()
  const { directory } = store
  const queries: PlacementQuery[] = []
  const give = (to: string | null) => {
    const place = (query: PlacementQuery): Placement => {
      queries.push(query)
      return to === null ? { kind: 'refused', reason: '' } : { kind: 'placed', hostId: to }
    }
    return restartOnOtherHost(
      { directory: withHosts(directory, clock, { place }), platform: 'tcg' },
      instance(),
      'claim_failed',
    )
  }
  expect(await give(null)).toEqual({ kind: 'stays' })
  expect(await give('second')).toEqual({ kind: 'given', hostId: 'second' })
  expect(instance()).toMatchObject({ hostId: 'second', attempt: 2 })
  expect(await give('third')).toEqual({ kind: 'stays' })
  expect(queries).toEqual(Array(2).fill({ platform: 'tcg', except: store.hostId }))
  expect(directory.transact(tx => giveToHost(tx, { id: 'instance', from: 'second', to: 'third', nowMs: 1 }))).toBe(
    false,
  )
  const other = bench()
  moveInstance(other.store.directory.db, { id: 'instance', from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  const asGiven = { id: 'instance', from: other.store.hostId, to: 'second', nowMs: 1 }
  expect(other.store.directory.transact(tx => giveToHost(tx, asGiven))).toBe(false)
  expect(other.instance()).toMatchObject({ attempt: 1, hostId: other.store.hostId })
})

// Goal: a VM that was left is ended, and remembered until it is gone, also by the next daemon.
test('VMs that were left', () => {
  const made = bench()
  const { store, dismissed, guest } = made
  store.directory.db.run("INSERT INTO left_vms VALUES ('vm')")
  made.reconciler.endLeft()
  expect([dismissed(), listLeftVms(store.directory.db)]).toEqual([true, ['vm']])
  guest.state = 'gone'
  made.start().endLeft()
  expect(listLeftVms(store.directory.db)).toEqual([])
})
