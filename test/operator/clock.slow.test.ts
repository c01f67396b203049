// Retention under a clock that is years ahead at the start; real database, real retention.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { newUuid } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { runRetention } from '../../src/instances/retention.ts'
import { clockRoutes, createClockMetrics } from '../../src/operator/clock.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { instances } from '../../src/store/directory/instance.table.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { restAddress, restingAt } from '../../src/store/ledger/address.query.ts'
import { readClockMark, writeClockMark } from '../../src/store/ledger/clock-mark.query.ts'
import { appendEvent, listEvents, noteEvent } from '../../src/store/ledger/event.query.ts'
import { swapMeta } from '../../src/store/ledger/meta.query.ts'

const dayMs = 86_400_000
const yearsMs = 3 * 365 * dayMs

function terminated(store: Store, { count, nowMs }: { count: number; nowMs: number }): void {
  const { db } = store.directory
  const organizationId = newUuid()
  insertOrganization(db, { id: organizationId, slug: 'acme', nowMs })
  const fixed = { hostId: store.hostId, organizationId, agent: 'opencode', publicKey, vmId: null } as const
  const mode = { inferenceMode: 'default_gateway', inferenceModel: 'tiny' } as const
  store.directory.transact(tx => {
    for (let index = 0; index < count; index += 1) {
      const name = `n${index}`
      insertInstance(tx, { id: newUuid(), name, hostname: `${name}.x`, ...fixed, ...mode, nowMs })
    }
    for (const { id } of tx.select().from(instances).all()) {
      moveInstance(tx, { id, from: 'provisioning', to: 'terminating', nowMs })
      moveInstance(tx, { id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
    }
  })
}

function daemon(store: Store, clock: ReturnType<typeof createManualClock>) {
  const guard = createClockGuard(clock, {
    readMark: () => readClockMark(store.ledger.db),
    writeMark: mark => writeClockMark(store.ledger.db, mark),
    onEvent: (kind, detail) =>
      noteEvent(store.ledger.db, silentLogger, { nowMs: clock.nowMs(), kind, subject: '', detail }),
  })
  const stopping = new AbortController()
  const { directory } = store
  const loops = [
    guard.run(stopping.signal),
    runRetention({ directory, clock, guard, log: silentLogger, retentionDays: 30 }, stopping.signal),
  ]
  const routes = clockRoutes({ clockGuard: guard })
  return {
    guard,
    ask: async (method: string, path: string) =>
      (await routes.handle(new Request(`http://admin${path}`, { method }))).json(),
    stop: async () => {
      stopping.abort()
      await Promise.all(loops)
    },
  }
}

const count = (store: Store) => store.directory.db.select().from(instances).all().length

// Goal: nothing is deleted and the operator sees why; what is due goes once the operator confirms the clock.
test('a start with a clock that is years ahead', async () => {
  const store = openStore(':memory:')
  const clock = createManualClock()
  terminated(store, { count: 700, nowMs: clock.nowMs() })
  await daemon(store, clock).stop()
  clock.set(clock.nowMs() + yearsMs)
  const running = daemon(store, clock)
  await clock.elapse(3 * dayMs)
  expect(count(store)).toBe(700)
  expect(await running.ask('GET', '/clock')).toMatchObject({
    state: 'held',
    ahead_s: yearsMs / 1000,
    problem: expect.stringContaining('1095 days ahead'),
    remedy: expect.stringContaining('strongroom clock confirm'),
  })
  expect(createClockMetrics(running.guard).render()).toContain('\nstrongroom_clock_held 1\n')
  // An address that was given back a moment ago still rests.
  restAddress(store.ledger.db, { address: '10.88.0.2', nowMs: clock.nowMs() - yearsMs - 1_000 })
  expect(restingAt(store.ledger.db, { nowMs: running.guard.certainMs(), restMs: 60_000 })).toEqual(['10.88.0.2'])
  expect(await running.ask('POST', '/clock/confirm')).toMatchObject({ state: 'believed', ahead_s: 0, problem: null })
  await clock.elapse(3_600_000)
  expect(count(store)).toBe(0)
  await running.stop()
  const kinds = listEvents(store.ledger.db, { limit: 10 }).map(({ kind }) => kind)
  expect(kinds.filter(kind => kind.startsWith('host.clock'))).toEqual(['host.clock_confirmed', 'host.clock_held'])
  store.close()
})

test('goal: a database from before there was a mark, or with one that cannot be read, goes by its newest event', async () => {
  for (const mark of [null, '{', '{"wallMs":"1"}']) {
    const store = openStore(':memory:')
    const clock = createManualClock()
    if (mark !== null) swapMeta(store.ledger.db, 'clock_mark', mark)
    expect(readClockMark(store.ledger.db)).toBeNull()
    appendEvent(store.ledger.db, { nowMs: clock.nowMs(), kind: 'host.started', subject: '', detail: {} })
    terminated(store, { count: 1, nowMs: clock.nowMs() })
    clock.set(clock.nowMs() + yearsMs)
    const running = daemon(store, clock)
    await clock.elapse(3_600_000)
    expect(count(store)).toBe(1)
    await running.stop()
    store.close()
  }
})
