// Goal: a leak is a problem once two searches in a row have found it, since then, and until one does not.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { AdminLeak } from '../../../src/contract/admin/admin.ts'
import { LeakWatch } from '../../../src/operator/problems/leaks.ts'

const leak: AdminLeak = { kind: 'tap', name: 'sr0', detail: 'unknown', vm: null, remedy: 'ip link delete sr0' }

test('goal: a VM that is being made is no leak, what stays is one', async () => {
  const clock = createManualClock(1_000)
  let found: AdminLeak[] = []
  const watch = new LeakWatch({ find: async () => found, clock, log: silentLogger })
  const look = async (...now: AdminLeak[]) => {
    found = now
    await watch.look()
    return watch.problems()
  }
  expect(await look(leak)).toEqual([])
  expect(await look({ ...leak, name: 'sr1' })).toEqual([])
  const [problem] = await look(leak, { ...leak, name: 'sr1' })
  expect(problem).toMatchObject({
    ...{ name: 'leaks', severity: 'warning', sinceMs: 1_000 },
    detail: 'the ledger and this host differ: 1 tap; the first is sr1: unknown',
  })
  await clock.elapse(5_000)
  expect((await look(leak, { ...leak, name: 'sr1' }))[0]).toMatchObject({ sinceMs: 1_000 })
  expect(await look()).toEqual([])
})

test('goal: it searches by itself, and a search that fails is no end of it', async () => {
  const clock = createManualClock(0)
  let searches = 0
  const find = async () => {
    searches += 1
    if (searches === 1) throw new Error('host.command_timeout')
    return [leak]
  }
  const watch = new LeakWatch({ find, clock, log: silentLogger })
  const stopping = new AbortController()
  const running = watch.run(stopping.signal)
  for (let minute = 0; minute < 16; minute += 1) await clock.elapse(60_000)
  stopping.abort()
  await running
  expect([searches, watch.problems().length]).toEqual([3, 1])
})
