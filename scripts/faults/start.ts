// The first start of an empty state directory, and the first organization and key in it. Effects: those of an
// appliance.

import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createAppliance } from '../rigs/appliance.ts'
import { holdingFindings } from './audit.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart } from './settings.ts'

export const startScenario: Scenario = {
  name: 'start',
  about: 'the first start of an empty state directory: database, authorities, keys, sockets',
  tracedFrom: 'start',
  open: openStage,
}

async function openStage(): Promise<Stage> {
  const appliance = await createAppliance(...calmSettings())
  const { stateDir } = appliance
  const caFile = join(stateDir, 'ca/ca.pem')
  await appliance.start()
  /** The authority that a client could have been given; null if none was there yet. */
  let authority: string | null = null
  return {
    appliance,
    prepare: async () => {
      await appliance.stop()
      rmSync(stateDir, { recursive: true, force: true })
      authority = null
    },
    run: async dead => {
      authority = readFileSync(caFile, 'utf8')
      await settledStart(appliance, dead)
    },
    unsettled: async () => holdingFindings(appliance, 0),
    audit: async () => [
      ...(authority === null || readFileSync(caFile, 'utf8') === authority ? [] : ['clients no longer trust the host']),
      ...(await customerFindings()),
    ],
    clear: async () => {
      // A second start on what the first one has left.
      await appliance.stop()
      await appliance.start()
      await settledStart(appliance)
      return existsSync(join(stateDir, 'simulator/keys.json')) ? [] : ['the simulated platform is lost']
    },
    [Symbol.asyncDispose]: () => appliance[Symbol.asyncDispose](),
  }

  async function customerFindings(): Promise<Findings> {
    await appliance.admin('org', 'create', 'acme')
    const { key } = await appliance.admin<{ key: string }>('key', 'create', 'acme')
    const { status } = await appliance.http('GET', '/v1/instances', { key })
    return status === 200 ? [] : [`a new customer gets ${status}`]
  }
}
