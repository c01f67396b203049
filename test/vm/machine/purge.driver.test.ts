// Rows of VMs that are gone, over a real database and a manual clock.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { runPurge } from '../../../src/vm/machine/purge.driver.ts'

// Goal: rows go a minute after their VMs. A failed round, as when another program holds the database, does not end the
// daemon.
test('a purge that fails is followed by the next', async () => {
  const store = openStore(':memory:')
  const { db } = store.ledger
  const clock = createManualClock()
  const vm = { hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512 }
  for (const id of ['gone', 'there']) insertVm(db, { ...vm, id, nowMs: clock.nowMs() })
  moveVm(db, { id: 'gone', from: 'waiting', to: 'gone', nowMs: clock.nowMs() })
  const stopping = new AbortController()
  const running = runPurge(
    { ledger: store.ledger, clock, guard: createClockGuard(clock), log: silentLogger },
    stopping.signal,
  )
  const left = () => ['gone', 'there'].filter(id => vmById(db, id) !== null)
  await clock.elapse(60_000)
  expect(left()).toEqual(['gone', 'there'])
  db.run('PRAGMA query_only = ON')
  await clock.elapse(60_000)
  expect(left()).toEqual(['gone', 'there'])
  db.run('PRAGMA query_only = OFF')
  await clock.elapse(60_000)
  expect(left()).toEqual(['there'])
  stopping.abort()
  await running
  store.close()
})
