// Instances: one that is deleted while its guest boots, one that is claimed, and one that runs while the daemon
// starts. Effects: those of an appliance.

import { startWithCustomer } from '../rigs/instances/instances-client.ts'
import { qemuProcesses, tpmProcesses } from '../rigs/leftovers.ts'
import { until } from '../rigs/until.ts'
import { holdingFindings } from './audit.ts'
import { OwnInstances } from './own-instances.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart, untilAttached } from './settings.ts'

const bootMs = 240_000

/** The VM is made, begins to boot, and is taken down. */
export const instancesScenario: Scenario = {
  name: 'instance',
  about: 'an instance is created, its VM is started, and it is deleted while the guest boots',
  tracedFrom: 'run',
  open: async () => {
    const started = await startWithCustomer(...calmSettings())
    const { appliance, acme } = started
    await settledStart(appliance)
    const own = new OwnInstances(acme)
    return {
      appliance,
      prepare: () => own.begin(),
      run: async dead => {
        const name = await own.create()
        await untilAttached(appliance, dead)
        await own.end(name)
      },
      unsettled: async () => [...(await own.unsettled()), ...holdingFindings(appliance, (await own.living()).length)],
      audit: () => own.audit(),
      clear: async () => {
        await own.clear()
        return holdingFindings(appliance, 0)
      },
      [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
    }
  },
}

/** Everything that the daemon does with a VM that is there already. */
export const restartScenario: Scenario = {
  name: 'restart',
  about: 'the daemon starts while an instance is ready, takes its VM up, and samples its egress',
  tracedFrom: 'start',
  open: async () => {
    const started = await startWithCustomer(...calmSettings())
    const { appliance, acme } = started
    const { name } = (await acme.create()).body.data
    await acme.reached(name, 'ready', bootMs)
    const processes = [...qemuProcesses(appliance.stateDir), ...tpmProcesses(appliance.stateDir)]
    const observed = async () => (await acme.usage()).usage.egress_observed_at
    const asBefore = async (): Promise<Findings> => {
      const { status, failure_code } = await acme.retrieve(name)
      const now = [...qemuProcesses(appliance.stateDir), ...tpmProcesses(appliance.stateDir)]
      return [
        ...(status === 'ready' ? [] : [`the ready instance is ${status} (${failure_code ?? 'no failure'})`]),
        ...(Bun.deepEquals(now, processes) ? [] : [`the VM is another one: processes ${now}, not ${processes}`]),
        ...holdingFindings(appliance, 1),
      ]
    }
    return {
      appliance,
      prepare: async () => {},
      run: async () => {
        const before = await observed()
        await until('its egress is sampled again', bootMs, async () => (await observed()) !== before)
      },
      unsettled: asBefore,
      audit: async () => {
        const { hostname } = await acme.retrieve(name)
        const { exitCode, stderr } = await appliance.ssh(hostname, ['true'])
        return exitCode === 0 ? [] : [`its SSH is gone: ${stderr}`]
      },
      clear: asBefore,
      [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
    }
  },
}

/** Each run needs a guest that has booted. */
export const claimScenario: Scenario = {
  name: 'claim',
  about: 'an instance takes a VM that has booted, is claimed, becomes ready, and is deleted',
  tracedFrom: 'run',
  open: async () => openClaim(),
  runMs: bootMs,
}

async function openClaim(): Promise<Stage> {
  const started = await startWithCustomer(...calmSettings({ pool: 'warm = 1', capacity: 'memory_mib = 2048' }))
  const { appliance, acme } = started
  const own = new OwnInstances(acme)
  return {
    appliance,
    prepare: async () => {
      await until('a VM is warm', bootMs, async () => {
        const { pool } = await appliance.admin<{ pool: { warm: number } }>('status')
        return pool.warm === 1
      })
      await own.begin()
    },
    run: async () => {
      const name = await own.create()
      await acme.reached(name, 'ready', bootMs)
      await own.end(name)
    },
    // Its own VM, or that of the pool: there is room for one.
    unsettled: async () => [...(await own.unsettled()), ...holdingFindings(appliance, 1)],
    audit: async () => {
      for (const name of await own.living()) await acme.reached(name, 'ready', bootMs)
      return own.audit()
    },
    clear: async () => {
      await own.clear()
      return []
    },
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  }
}
