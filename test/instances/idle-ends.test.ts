// Goal: a ready instance whose VM says that its idle time is over ends with that reason; no other does, and a VM that
// does not answer is left alone.

import { expect, test } from 'bun:test'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { Fault } from '../../src/base/fault.ts'
import { silentLogger } from '../../src/base/log.ts'
import { endIdleOnes, type IdleDeps } from '../../src/instances/idle-ends.ts'
import { moveInstance } from '../../src/store/directory/instance.query.ts'
import type { Instance } from '../../src/store/directory/instance.table.ts'

test('goal: only those that say so', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  const [idle, busy, silent] = [await appliance.create(), await appliance.create(), await appliance.create()]
  // It is still being provisioned.
  await appliance.create()
  for (const { id } of [idle, busy, silent]) {
    moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  }
  const asked = new Map<string, number | null>()
  const ended: string[] = []
  const deps = {
    directory: store.directory,
    hostId: store.hostId,
    clock: appliance.clock,
    log: silentLogger,
    minutesOf: (slug: string) => (slug === 'acme' ? 30 : null),
    isIdle: async (vmId: string, minutes: number | null) => {
      asked.set(vmId, minutes)
      if (vmId === silent.vmId) throw new Fault('channel.refused', 'bad_request: not a request of this wire')
      return vmId !== busy.vmId
    },
    beforeEnd: async () => true,
    endIdle: async (instance: Instance) => void ended.push(instance.id),
  } satisfies IdleDeps
  await endIdleOnes(deps, new Set())
  expect(ended).toEqual([idle.id])
  expect(asked).toEqual(new Map([idle, busy, silent].map(({ vmId }) => [String(vmId), 30])))
})

test('goal: a snapshot comes first; who comes back meanwhile keeps the instance, and a snapshot that has to wait delays the end', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  const instance = await appliance.create()
  moveInstance(store.db, { id: instance.id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  const steps: string[] = []
  let [isIdle, mayEnd, isBack] = [true, false, false]
  const deps: IdleDeps = {
    directory: store.directory,
    hostId: store.hostId,
    clock: appliance.clock,
    log: silentLogger,
    minutesOf: () => 30,
    isIdle: async () => isIdle,
    beforeEnd: async () => {
      steps.push('snapshot')
      isIdle = !isBack
      return mayEnd
    },
    endIdle: async () => void steps.push('end'),
  }
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot'])
  ;[mayEnd, isBack] = [true, true]
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot', 'snapshot'])
  ;[isIdle, isBack] = [true, false]
  await endIdleOnes(deps, new Set([instance.id]))
  expect(steps).toEqual(['snapshot', 'snapshot'])
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot', 'snapshot', 'snapshot', 'end'])
})
