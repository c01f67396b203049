// Egress samples on their way from the host's ledger to the instances in the directory.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { until } from '../../scripts/rigs/until.ts'
import { silentLogger } from '../../src/base/log.ts'
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
    { store, clock, log: silentLogger, intervalMs: 1_000, sample: async () => rounds.shift()?.() ?? [] },
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
