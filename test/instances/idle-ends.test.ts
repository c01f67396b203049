// Goal: a ready instance whose VM says that its idle time is over ends with that reason; no other does, and a VM that
// does not answer is left alone.

import { expect, test } from 'bun:test'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { Fault } from '../../src/base/fault.ts'
import { silentLogger } from '../../src/base/log.ts'
import { endIdleOnes } from '../../src/instances/idle-ends.ts'
import { moveInstance } from '../../src/store/directory/instance.query.ts'

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
  await endIdleOnes({
    directory: store.directory,
    hostId: store.hostId,
    clock: appliance.clock,
    log: silentLogger,
    minutesOf: slug => (slug === 'acme' ? 30 : null),
    isIdle: async (vmId, minutes) => {
      asked.set(vmId, minutes)
      if (vmId === silent.vmId) throw new Fault('channel.refused', 'bad_request: not a request of this wire')
      return vmId !== busy.vmId
    },
    endIdle: async instance => void ended.push(instance.id),
  })
  expect(ended).toEqual([idle.id])
  expect(asked).toEqual(new Map([idle, busy, silent].map(({ vmId }) => [String(vmId), 30])))
})
