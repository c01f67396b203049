// The VM of the gateway: started, lost, and started again; and one that serves replaced by another. Effects: those of
// an appliance.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { AdminGatewayVms } from '../../src/contract/admin/gateway-vms.ts'
import { type Appliance, createAppliance } from '../rigs/appliance.ts'
import { createModelFile, gatewayTables } from '../rigs/gateway/appliance-gateway.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import { until } from '../rigs/until.ts'
import { holdingFindings } from './audit.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart, untilAttached } from './settings.ts'

const stepMs = 60_000
const serveMs = 240_000

export const gatewayVmScenario: Scenario = {
  name: 'gateway-vm',
  about: 'the daemon takes up a gateway VM, whose QEMU is killed while the guest boots, and another one is started',
  tracedFrom: 'start',
  open: async () => openLost(),
}

export const gatewayUpdateScenario: Scenario = {
  name: 'gateway-update',
  about:
    'a gateway VM that serves is replaced: another one boots, is verified and takes over, and the first one drains',
  tracedFrom: 'run',
  open: async () => openUpdate(),
  runMs: serveMs,
}

type Serving = AsyncDisposable & { readonly appliance: Appliance }

async function openAppliance(): Promise<Serving> {
  const file = createModelFile()
  const appliance = await createAppliance(...calmSettings({}, await gatewayTables(file.path, 'vm')))
  await appliance.start()
  await settledStart(appliance)
  return {
    appliance,
    [Symbol.asyncDispose]: async () => {
      await appliance[Symbol.asyncDispose]()
      file[Symbol.dispose]()
    },
  }
}

async function listGatewayVms(appliance: Appliance) {
  const { gateways } = await appliance.admin<AdminGatewayVms>('inference', 'show')
  return gateways.filter(({ state }) => state !== 'gone')
}

/** One row, and one VM that is that row's. */
async function oneGateway(appliance: Appliance): Promise<Findings> {
  const rows = await listGatewayVms(appliance)
  const machines = readdirSync(join(appliance.stateDir, 'vms'))
  return [
    ...(rows.length === 1 ? [] : [`there are ${rows.length} gateway VMs: ${rows.map(row => row.state).join(', ')}`]),
    ...rows.filter(row => !machines.includes(row.vm)).map(row => `the gateway VM ${row.vm} has no directory`),
    ...holdingFindings(appliance, 1),
  ]
}

async function openLost(): Promise<Stage> {
  const { appliance, ...opened } = await openAppliance()
  const endMachines = () => {
    for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGKILL')
  }
  return {
    appliance,
    prepare: () => until('there is one VM', stepMs, async () => (await oneGateway(appliance)).length === 0),
    run: async dead => {
      await untilAttached(appliance, dead)
      const [first] = readdirSync(join(appliance.stateDir, 'vms'))
      endMachines()
      await until('another gateway VM is there', stepMs, () => {
        dead.throwIfAborted()
        const machines = readdirSync(join(appliance.stateDir, 'vms'))
        return machines.length === 1 && machines[0] !== first
      })
      await untilAttached(appliance, dead)
    },
    unsettled: () => oneGateway(appliance),
    audit: async () => [],
    clear: async () => [],
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  }
}

async function openUpdate(): Promise<Stage> {
  const { appliance, ...opened } = await openAppliance()
  let before = ''
  const servingVm = async () => (await listGatewayVms(appliance)).find(({ state }) => state === 'serving')?.vm ?? null
  const serves = (other: string) =>
    until('a gateway VM serves alone', serveMs, async () => {
      const rows = await listGatewayVms(appliance)
      return rows.length === 1 && rows[0]?.state === 'serving' && rows[0].vm !== other
    })
  return {
    appliance,
    prepare: async () => {
      await serves('')
      before = (await servingVm()) ?? ''
    },
    run: async () => {
      await appliance.admin('inference', 'update')
      await serves(before)
    },
    unsettled: async () => {
      const rows = await listGatewayVms(appliance)
      const served = rows.filter(({ state }) => state === 'serving').length
      return [...(served === 1 ? [] : [`${served} gateway VMs serve`]), ...holdingFindings(appliance, rows.length)]
    },
    audit: async () => [],
    clear: async () => {
      // One that had begun goes on to its end; what was asked for and is forgotten may be asked for again.
      await until('one gateway VM is left', serveMs, async () => (await listGatewayVms(appliance)).length === 1)
      // The row of the other has ended before its VM.
      let left: Findings = []
      const isAlone = async () => {
        left = await oneGateway(appliance)
        return left.length === 0
      }
      await until('its VM is gone', stepMs, isAlone).catch(() => {})
      return left
    },
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  }
}
