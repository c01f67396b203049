// An instance is created, its VM is started, and it is deleted while the guest boots. Effects: those of an appliance.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { startWithCustomer } from '../../test/rigs/instances-client.ts'
import { until } from '../../test/rigs/until.ts'
import { holdingFindings } from './audit.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart } from './settings.ts'

const stepMs = 30_000

export const instancesScenario: Scenario = {
  name: 'instance',
  about: 'an instance is created, its VM is started, and it is deleted while the guest boots',
  tracedFrom: 'run',
  open: openStage,
}

async function openStage(): Promise<Stage> {
  const started = await startWithCustomer(...calmSettings())
  const { appliance, acme } = started
  await settledStart(appliance)
  let run = 0
  let before = new Set<string>()
  /** What the client was told. */
  let accepted: { name: string | null; deleted: boolean } = { name: null, deleted: false }
  const ownRecords = async () => (await acme.list()).filter(({ name }) => !before.has(name))

  const unsettled = async (): Promise<Findings> => {
    const records = await ownRecords()
    const moving = records.filter(({ status }) => status === 'terminating' || status === 'failed')
    const living = records.filter(({ status }) => status === 'provisioning' || status === 'ready')
    const { name, deleted } = accepted
    return [
      ...moving.map(one => `${one.name} is ${one.status} (${one.failure_code ?? 'no failure'})`),
      ...(name === null || records.some(one => one.name === name) ? [] : [`the accepted instance ${name} is lost`]),
      ...(deleted ? living.map(one => `the deleted instance ${one.name} is ${one.status}`) : []),
      ...holdingFindings(appliance, living.length),
    ]
  }

  return {
    appliance,
    prepare: async () => {
      run += 1
      before = new Set((await acme.list()).map(({ name }) => name))
      accepted = { name: null, deleted: false }
    },
    run: async dead => {
      const { name } = (await acme.create(`run-${run}`)).body.data
      accepted.name = name
      await until('the daemon has connected to QEMU', stepMs, () => {
        dead.throwIfAborted()
        return hasConsole(appliance.stateDir)
      })
      await acme.remove(name)
      accepted.deleted = true
      await acme.reached(name, 'terminated', stepMs)
    },
    unsettled,
    audit: async () => {
      const { status, body } = await acme.create(`run-${run}`)
      const records = await ownRecords()
      const { name } = accepted
      return [
        ...(status === 202 ? [] : [`the same create again gets ${status} ${JSON.stringify(body.error ?? null)}`]),
        ...(records.length === 1 ? [] : [`one create has made ${records.length} instances`]),
        ...(name === null || body.data?.name === name
          ? []
          : [`the same create again gets ${body.data?.name}, not ${name}`]),
      ]
    },
    clear: async () => {
      for (const { name } of await ownRecords()) await acme.end(name, stepMs)
      return holdingFindings(appliance, 0)
    },
    [Symbol.asyncDispose]: () => started[Symbol.asyncDispose](),
  }
}

/** Whether a VM's console is written down, which is the first that is done with a QEMU that runs. */
function hasConsole(stateDir: string): boolean {
  const vms = join(stateDir, 'vms')
  return readdirSync(vms).some(id => existsSync(join(vms, id, 'console.log')))
}
