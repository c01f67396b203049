// Builds: one that is accepted, gets its VM, and is cancelled while the guest boots. Effects: those of an appliance.

import { createBuildsAppliance, createBuildsClient } from '../rigs/build/builds-client.ts'
import { archiveOf, plainProject } from '../rigs/build/sources.ts'
import { until } from '../rigs/until.ts'
import { holdingFindings } from './audit.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmLines, settledStart, untilAttached } from './settings.ts'

const stepMs = 60_000
const builds = 'concurrent_max = 1\nper_day_max = 100_000'
const endedStates: readonly string[] = ['cancelled', 'failed', 'ok']

export const buildsScenario: Scenario = {
  name: 'build',
  about: 'a build is accepted with its source, gets a VM, and is cancelled while the guest boots',
  tracedFrom: 'run',
  open: async () => openBuilds(),
}

async function openBuilds(): Promise<Stage> {
  const { appliance } = await createBuildsAppliance(builds, calmLines())
  await appliance.start()
  await settledStart(appliance)
  const client = await createBuildsClient(appliance)
  const source_data = Buffer.from(archiveOf(plainProject)).toString('base64')
  let nonce = ''
  let accepted: string | null = null
  let isCancelled = false

  const submit = () => client.submit({ nonce, source_data, source_name: 'hello.tar.gz' })
  const cancel = (id: string) => client.ask(`/build/${id}`, { method: 'DELETE' })
  const living = async () => (await openIds()).length
  const openIds = async () => {
    const all = await appliance.admin<{ builds: { id: string; state: string }[] }>('builds', 'list')
    return all.builds.filter(({ state }) => !endedStates.includes(state)).map(({ id }) => id)
  }

  return {
    appliance,
    prepare: async () => {
      nonce = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex')
      accepted = null
      isCancelled = false
    },
    run: async dead => {
      const { status, job_id } = await submit()
      if (status !== 200) throw new Error(`the build is not accepted: ${status}`)
      accepted = job_id
      await untilAttached(appliance, dead)
      isCancelled = (await cancel(job_id)).ok
      await until('its VM is gone', stepMs, () => {
        dead.throwIfAborted()
        return holdingFindings(appliance, 0).length === 0
      })
    },
    unsettled: async () => {
      const count = await living()
      return [
        ...(isCancelled && count > 0 ? ['the cancelled build goes on'] : []),
        ...holdingFindings(appliance, count),
      ]
    },
    audit: async (): Promise<Findings> => {
      const again = await submit()
      const expected = accepted === null ? [200, 409] : [409]
      const id = accepted ?? again.job_id
      return [
        ...(expected.includes(again.status) ? [] : [`the same nonce again gets ${again.status}`]),
        ...(id === undefined ? [] : await recordFindings(id)),
        ...((await living()) > 1 ? ['one request has made two builds'] : []),
      ]
    },
    clear: async () => {
      for (const id of await openIds()) await cancel(id)
      await until('their VMs are gone', stepMs, () => holdingFindings(appliance, 0).length === 0)
      return accepted === null ? [] : eventFindings(accepted)
    },
    [Symbol.asyncDispose]: () => appliance[Symbol.asyncDispose](),
  }

  async function recordFindings(id: string): Promise<Findings> {
    const response = await client.ask(`/build/${id}`)
    return response.ok ? [] : [`the accepted build ${id} is lost: ${response.status}`]
  }

  /** Numbered without a gap, and ended once. */
  async function eventFindings(id: string): Promise<Findings> {
    const seen = await Array.fromAsync(client.stream(id))
    const ends = seen.filter(event => event.data.type === 'complete').length
    return [
      ...(seen.every((event, at) => event.id === at + 1)
        ? []
        : [`its events are numbered ${seen.map(event => event.id)}`]),
      ...(ends === 1 ? [] : [`it has ended ${ends} times`]),
    ]
  }
}
