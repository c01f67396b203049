// Goal: the host keeps one hour of points of each running VM, with CPU time of one process, and forgets the rest.

import { expect, test } from 'bun:test'
import type { ProcessUsage } from '../../../src/host/process-usage.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm } from '../../../src/store/ledger/vm.query.ts'
import { UsageHistory } from '../../../src/vm/machine/usage-history.ts'

const startMs = Date.parse('2026-11-20T12:00:00.000Z')
const [firstVm, secondVm] = ['00000001-0000-4000-8000-000000000000', '00000002-0000-4000-8000-000000000000'] as const

function rig() {
  const store = openStore(':memory:')
  const { db } = store.ledger
  for (const id of [firstVm, secondVm])
    insertVm(db, { id, hostId: store.hostId, image: 'instance', vcpus: 2, memoryMib: 512, nowMs: startMs })
  const asked: { pid: number; startTicks: number }[] = []
  const usage = { value: null as ProcessUsage | null }
  const history = new UsageHistory({
    db,
    usage: process => {
      asked.push(process)
      return usage.value
    },
  })
  const runs = (vmId: string, name: string) => recordResource(db, { vmId, kind: 'qemu', name, nowMs: startMs })
  const sample = (vmId: string, atS: number, usedBytes = 0) => ({
    ...{ vmId, usedBytes, rescueBytes: 0, observedAtMs: startMs + atS * 1000, blockedAtMs: null },
  })
  return { history, usage, asked, runs, sample }
}

test('goal: CPUs are CPU time by time, from the second point of a process on', () => {
  const { history, usage, asked, runs, sample } = rig()
  runs(firstVm, '71:9')
  usage.value = { cpuMs: 1_000, memoryBytes: 100 }
  history.add([sample(firstVm, 0, 5)])
  // Too early for a point: the process is not read.
  history.add([sample(firstVm, 29, 6)])
  usage.value = { cpuMs: 46_000, memoryBytes: 200 }
  history.add([sample(firstVm, 30, 7)])
  expect(asked).toEqual(Array(2).fill({ pid: 71, startTicks: 9 }))
  // Another QEMU of the same VM, whose CPU time begins again.
  runs(firstVm, '72:11')
  usage.value = { cpuMs: 60_000, memoryBytes: 300 }
  history.add([sample(firstVm, 60, 8)])
  usage.value = null
  history.add([sample(firstVm, 90, 9)])
  expect(history.of(firstVm)).toEqual([
    { atMs: startMs, cpus: null, memoryBytes: 100, egressBytes: 5 },
    { atMs: startMs + 30_000, cpus: 1.5, memoryBytes: 200, egressBytes: 7 },
    { atMs: startMs + 60_000, cpus: null, memoryBytes: 300, egressBytes: 8 },
    { atMs: startMs + 90_000, cpus: null, memoryBytes: null, egressBytes: 9 },
  ])
})

test('goal: a QEMU that is only about to start is not read', () => {
  const { history, asked, runs, sample } = rig()
  runs(firstVm, `unspawned:${firstVm}`)
  history.add([sample(firstVm, 0)])
  expect(asked).toEqual([])
  expect(history.of(firstVm)).toHaveLength(1)
})

test('goal: one hour at most, each VM for itself, and nothing of a VM that is gone', () => {
  const { history, sample } = rig()
  for (let index = 0; index < 200; index += 1)
    history.add([sample(firstVm, index * 30), sample(secondVm, index * 30 + 1)])
  expect(history.of(firstVm)).toHaveLength(120)
  expect(history.of(firstVm).at(0)?.atMs).toBe(startMs + 80 * 30_000)
  expect(history.of(secondVm).at(-1)?.atMs).toBe(startMs + 199 * 30_000 + 1_000)
  history.add([sample(secondVm, 6_001)])
  expect(history.of(firstVm)).toEqual([])
  expect(history.of(secondVm)).toHaveLength(120)
})

test('goal: a clock that was set back starts over, so that points stay in order', () => {
  const { history, sample } = rig()
  history.add([sample(firstVm, 0)])
  history.add([sample(firstVm, 60)])
  history.add([sample(firstVm, -3_600)])
  expect(history.of(firstVm).map(({ atMs }) => atMs)).toEqual([startMs - 3_600_000])
})
