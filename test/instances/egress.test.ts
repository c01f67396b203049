// Egress samples on their way from the host's ledger to the instances in the directory.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { until } from '../../scripts/rigs/until.ts'
import { Fault } from '../../src/base/fault.ts'
import { silentLogger } from '../../src/base/log.ts'
import { egressLimitBytes } from '../../src/contract/http/instance.ts'
import type { EgressCount } from '../../src/contract/vm/agent.ts'
import { runEgressSampler } from '../../src/instances/egress.ts'
import { instanceById } from '../../src/store/directory/instance.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import type { EgressSample } from '../../src/store/ledger/vm.table.ts'

// Goal: an instance shows its VM's sample and keeps it after the VM is gone; its block is journalled once; a VM
// without an instance is skipped; a failed round is followed by the next.
test('samples reach the instances that they belong to', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  // A clock of its own: nobody else sleeps on it, so one sleeper is the sampler between two rounds.
  const clock = createManualClock(appliance.clock.nowMs())
  const { id, vmId } = await appliance.create()
  const sampleOf = (usedBytes: number, blockedAtMs: number | null): EgressSample => ({
    vmId: String(vmId),
    usedBytes,
    rescueBytes: 0,
    observedAtMs: clock.nowMs(),
    blockedAtMs,
  })
  const rounds: (() => readonly EgressSample[])[] = [
    () => [{ ...sampleOf(1, null), vmId: 'of a pool' }, sampleOf(7, null)],
    () => {
      throw new Error('nft is away')
    },
    () => [sampleOf(900, 5)],
    () => [sampleOf(901, 5)],
    () => [],
  ]
  const stop = new AbortController()
  const sampler = runEgressSampler(
    {
      ...{ store, clock, log: silentLogger, intervalMs: 1_000, handEgress: async () => {} },
      sample: async () => rounds.shift()?.() ?? [],
    },
    stop.signal,
  )
  const seen: (readonly [number | undefined, number | null | undefined])[] = []
  for (let round = 0; round < 5; round += 1) {
    // The request that made the instance may have left a sleeper of its own, with another time.
    await until('the round is over', 15_000, async () => clock.pending().includes(1_000))
    const row = instanceById(store.db, id)
    seen.push([row?.egressBytes, row?.egressBlockAppliedAtMs])
    clock.advance(1_000)
  }
  stop.abort(new Error('stop'))
  await sampler
  expect(seen).toEqual([
    [7, null],
    [7, null],
    [900, 5],
    [901, 5],
    [901, 5],
  ])
  const journal = listEvents(store.ledger.db, { subject: id, limit: 10 })
  expect(journal.map(({ kind, detail }) => [kind, detail])).toEqual([['instance.egress_blocked', { usedBytes: 900 }]])
})

// Goal: a VM gets the count of its egress once for each whole percent of its limit; what it misses comes with the next
// sample, a VM of an earlier release, which refuses counts, is not asked again, and one that hangs has one open count.
test('counts reach the VMs', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  const clock = createManualClock(appliance.clock.nowMs())
  const { vmId } = await appliance.create()
  const percent = Math.ceil(egressLimitBytes / 100)
  const refusal = new Fault('channel.refused', 'agent egress: bad_request')
  const hung = Promise.withResolvers<void>()
  const rounds: [usedBytes: number, answer: Fault | Promise<void> | null][] = [
    [0, null],
    [percent - 1, null],
    [percent, new Fault('channel.closed', 'the VM is not attached')],
    [percent + 1, null],
    [5 * percent, refusal],
    [5 * percent + 1, null],
    [6 * percent, hung.promise],
    [7 * percent, null],
    [egressLimitBytes, null],
  ]
  const handed: number[][] = []
  let usedBytes = -1
  let answer: Fault | Promise<void> | null = null
  const stop = new AbortController()
  const sampling = {
    ...{ store, clock, log: silentLogger, intervalMs: 1_000 },
    sample: async () => [
      { vmId: String(vmId), usedBytes, rescueBytes: 0, observedAtMs: clock.nowMs(), blockedAtMs: null },
      { vmId: 'of a pool', usedBytes: 3, rescueBytes: 0, observedAtMs: clock.nowMs(), blockedAtMs: null },
    ],
    handEgress: async (to: string, count: EgressCount) => {
      expect([to, count.limitBytes]).toEqual([String(vmId), egressLimitBytes])
      handed.push([count.usedBytes])
      if (answer instanceof Fault) throw answer
      await answer
    },
  }
  let sampler: Promise<void> | null = null
  const seen: number[] = []
  for (const [used, next] of rounds) {
    usedBytes = used
    answer = next
    sampler ??= runEgressSampler(sampling, stop.signal)
    await until('the round is over', 15_000, async () => clock.pending().includes(1_000))
    seen.push(handed.length)
    if (used === 7 * percent) {
      hung.resolve()
      await hung.promise
    }
    clock.advance(1_000)
  }
  stop.abort(new Error('stop'))
  await sampler
  expect(seen).toEqual([1, 1, 2, 3, 4, 4, 5, 5, 6])
  expect(handed.flat()).toEqual([0, percent, percent + 1, 5 * percent, 6 * percent, egressLimitBytes])
})
