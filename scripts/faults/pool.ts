// The warm pool: filled, taken from, refilled, and drained. Effects: those of an appliance.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { startWithCustomer } from '../rigs/instances/instances-client.ts'
import { until } from '../rigs/until.ts'
import { holdingFindings } from './audit.ts'
import { OwnInstances } from './own-instances.ts'
import type { Scenario, Stage } from './scenario.ts'
import { calmSettings, configure, settledStart, untilAttached } from './settings.ts'

const stepMs = 60_000
/** There is room for one VM. */
const settings = calmSettings({ pool: 'warm = 0', capacity: 'memory_mib = 2048' })

export const poolScenario: Scenario = {
  name: 'pool',
  about: 'the daemon starts and fills its pool, an instance takes the VM and is deleted, and the pool is filled again',
  tracedFrom: 'start',
  open: async () => openPool(),
}

export const drainScenario: Scenario = {
  name: 'drain',
  about: 'the daemon starts with a VM in its pool that it is not to keep any more',
  tracedFrom: 'start',
  open: async () => openDrain(),
}

async function openPool(): Promise<Stage> {
  const started = await startWithCustomer(...settings)
  const { appliance, acme } = started
  await settledStart(appliance)
  const own = new OwnInstances(acme)
  const machines = () => readdirSync(join(appliance.stateDir, 'vms'))
  return {
    appliance,
    prepare: async () => {
      await own.begin()
      configure(appliance, 'warm = 0', 'warm = 1')
    },
    run: async dead => {
      await untilAttached(appliance, dead)
      const [first] = machines()
      await own.end(await own.create())
      await until('the pool has another VM', stepMs, () => {
        dead.throwIfAborted()
        return !machines().includes(first ?? '')
      })
      await untilAttached(appliance, dead)
    },
    unsettled: async () => [...(await own.unsettled()), ...holdingFindings(appliance, 1)],
    audit: () => own.audit(),
    clear: async () => {
      await own.clear()
      configure(appliance, 'warm = 1', 'warm = 0')
      await appliance.stop()
      await appliance.start()
      await until('the pool is empty', stepMs, () => holdingFindings(appliance, 0).length === 0)
      return []
    },
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  }
}

async function openDrain(): Promise<Stage> {
  const started = await startWithCustomer(...settings)
  const { appliance } = started
  await settledStart(appliance)
  return {
    appliance,
    prepare: async () => {
      configure(appliance, 'warm = 0', 'warm = 1')
      await appliance.stop()
      await appliance.start()
      await untilAttached(appliance)
      configure(appliance, 'warm = 1', 'warm = 0')
    },
    run: dead =>
      until('the pool is empty', stepMs, () => {
        dead.throwIfAborted()
        return holdingFindings(appliance, 0).length === 0
      }),
    unsettled: async () => holdingFindings(appliance, 0),
    audit: async () => [],
    clear: async () => holdingFindings(appliance, 0),
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  }
}
