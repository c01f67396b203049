// Held VMs of an owner that is made up: rows in memory, a scripted engine, a real ledger and a manual clock.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { present } from '../../../src/base/assert.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertVm } from '../../../src/store/ledger/vm.query.ts'
import type { HeldRow, HeldState } from '../../../src/vm/held/held.plan.ts'
import { HeldVms } from '../../../src/vm/held/held-vms.ts'
import { spec } from '../../rigs/launch/vm-engine.ts'

function owner({ wanted = 2 } = {}) {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const rows: HeldRow[] = []
  const states = new Map<string, HeldState>()
  const world = { image: 'a' as string | null }
  const seen = { dismissed: [] as string[], discarded: [] as string[], lost: [] as string[], looks: 0 }
  const host = {
    store,
    engine: {
      define: (vmId: string) => insertVm(store.ledger.db, { ...spec, id: vmId, hostId: store.hostId, nowMs: 0 }),
      dismiss: (vmId: string) => void seen.dismissed.push(vmId),
      view: () => null,
      onChange: () => {},
    },
    vmSpec: spec,
    shape: 'small',
    imageDigest: () => present(world.image, 'an image'),
    room: () => ({ kind: 'admit' }) as const,
    clock,
    random: systemRandom,
    log: silentLogger,
  }
  const held = new HeldVms<HeldRow>(host, {
    noun: 'VMs of a test',
    wanted,
    list: () => [...rows],
    remove: (_, vmId) => {
      const at = rows.findIndex(row => row.vmId === vmId)
      if (at >= 0) rows.splice(at, 1)
      return at >= 0
    },
    named: () => new Set(rows.map(({ vmId }) => vmId)),
    judge: (_, { vmId }) => states.get(vmId) ?? { kind: 'held', rank: 1 },
    look: () => {
      seen.looks += 1
    },
    onUnusableImage: () => {},
    onLost: ({ reason, retryMs }) => void seen.lost.push(`${reason} ${retryMs}`),
    onDiscard: (_, reason) => void seen.discarded.push(reason),
    surplusReason: 'surplus',
    shapeReason: 'shape',
  })
  const add = (state: HeldState | null = null, changes: Partial<HeldRow> = {}) => {
    const row = { ...held.newRow('a'), ...changes }
    rows.push(row)
    held.define(row)
    if (state !== null) states.set(row.vmId, state)
    return row.vmId
  }
  return { held, add, rows, world, seen, clock, db: store.directory.db }
}

test('goal: the best VM of the present image and shape is taken, once', () => {
  const { held, add, world, db } = owner()
  add({ kind: 'held', rank: 0 }, { imageDigest: 'b' })
  add({ kind: 'held', rank: 0 }, { shape: 'large' })
  add({ kind: 'reserved' })
  const booting = add()
  const warm = add({ kind: 'held', rank: 0 })
  expect([held.take(db)?.row.vmId, held.take(db)?.row.vmId, held.take(db)]).toEqual([warm, booting, null])
  world.image = null
  expect(held.take(db)).toBeNull()
})

test('goal: a drain keeps the wanted VMs, leaves taken and reserved ones alone, and counts losses as one failure', () => {
  const { held, add, rows, seen } = owner()
  const kept = [add({ kind: 'held', rank: 0 }), add()]
  const reserved = add({ kind: 'reserved' })
  const taken = add({ kind: 'taken' })
  const gone = [
    add({ kind: 'lost', reason: 'broken' }),
    add({ kind: 'lost', reason: 'killed' }),
    add({ kind: 'unwanted', reason: 'late' }),
    add(null, { imageDigest: 'b' }),
    add(null, { shape: 'large' }),
    add({ kind: 'held', rank: 3 }),
  ]
  expect(held.drain('a').map(({ row }) => row.vmId)).toEqual(kept)
  expect(rows.map(({ vmId }) => vmId)).toEqual([...kept, reserved])
  expect(seen.discarded).toEqual(['broken', 'killed', 'late', 'the image has changed', 'shape', 'surplus'])
  expect(seen.dismissed).toEqual(gone)
  expect(seen.lost).toEqual(['killed 1000'])
  expect([held.backOff.failures, held.backOff.waitMs()]).toEqual([1, 1000])
  // No row names them any more; this engine leaves dismissed VMs in the ledger.
  expect(held.unnamed().map(({ id }) => id)).toEqual([taken, ...gone])
})

test('goal: sweeps and alarms lead to looks until the end', async () => {
  const { held, seen, clock } = owner()
  let sweeps = 0
  held.start(
    () => true,
    () => {
      sweeps += 1
    },
  )
  await clock.elapse(0)
  expect([sweeps, seen.looks]).toEqual([1, 1])
  held.alarm(1_000)
  await clock.elapse(1_000)
  expect([sweeps, seen.looks]).toEqual([1, 2])
  await clock.elapse(4_000)
  expect([sweeps, seen.looks]).toEqual([2, 3])
  await held.stop()
  await clock.elapse(60_000)
  expect([sweeps, seen.looks]).toEqual([2, 3])
})
