// The cost of a list of the greatest length.

import { describe, expect, test } from 'bun:test'
import { type Appliance, publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { present } from '../../../src/base/assert.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { RecordLists } from '../../../src/instances/record-texts.ts'
import { insertInstance, moveInstance } from '../../../src/store/directory/instance.query.ts'

/** CPU time of the longest stretch without a turn for others, while a daemon that has just started makes the list. */
async function longestTurnMs({ store, instance }: Appliance): Promise<number> {
  const { organizationId } = instance('00000000')
  let longestMs = 0
  let since = process.cpuUsage()
  const measure = () => {
    const { user, system } = process.cpuUsage(since)
    longestMs = Math.max(longestMs, (user + system) / 1000)
  }
  const lists = new RecordLists(store.db, async () => {
    measure()
    await new Promise(resolve => setImmediate(resolve))
    since = process.cpuUsage()
  })
  await lists.of(organizationId)
  measure()
  return longestMs
}

describe('a list at the bound', () => {
  /** 1,000 records, most of them terminated, with keys of the largest size. */
  async function full() {
    const appliance = await startAppliance()
    const { organizationId } = await appliance.create()
    const longKey = `${publicKey} ${'x'.repeat(8_192 - publicKey.length - 1)}`
    appliance.store.transact(tx => {
      for (let i = 0; i < 999; i += 1) {
        const id = newUuid()
        const name = i.toString(36).padStart(8, '0')
        const common = { hostId: 'h', organizationId, agent: 'opencode', inferenceMode: 'default_gateway' }
        insertInstance(tx, {
          ...common,
          id,
          name,
          hostname: `${name}.acme.agents.example`,
          publicKey: longKey,
          inferenceModel: 'tiny',
          vmId: newUuid(),
          nowMs: appliance.clock.nowMs(),
        })
        moveInstance(tx, { id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
        moveInstance(tx, { id, from: 'ready', to: 'terminating', nowMs: 1, terminatedReason: 'deleted_via_api' })
        moveInstance(tx, { id, from: 'terminating', to: 'terminated', nowMs: 1, terminatedAtMs: 1 })
      }
    })
    return appliance
  }

  test('costs less than 20 ms, also after a change, and shows what is', async () => {
    // Goal: a list blocks others for far less than 0.9 s (issue 9). The best of several: leaves garbage collection out.
    await using appliance = await full()
    const list = async (path = '/v1/instances') => {
      const request = new Request(`http://agents.example${path}`, {
        headers: { Authorization: `Bearer ${appliance.keys.acme}` },
      })
      // CPU time: what others do on this machine is not the list's.
      const started = process.cpuUsage()
      const response = await appliance.http(request, { address: () => '' })
      const { user, system } = process.cpuUsage(started)
      return { ms: (user + system) / 1000, response }
    }
    // Most of the time that the slow ones take is the kernel's, for the pages of the text.
    const triesMax = 15
    // Goal: also in a daemon that has just started, nobody waits for a whole list.
    const held: number[] = []
    for (let i = 0; i < triesMax; i += 1) held.push(await longestTurnMs(appliance))
    expect(Math.min(...held)).toBeLessThan(20)
    const cold = await list()
    const listed = (await cold.response.json()) as { data: { instances: { name: string; status: string }[] } }
    expect(listed.data.instances).toHaveLength(1000)
    const living = present(
      listed.data.instances.find(({ status }) => status === 'provisioning'),
      'one is not terminated',
    )
    const warm: number[] = []
    const usage: number[] = []
    for (let i = 0; i < triesMax; i += 1) {
      warm.push((await list()).ms)
      usage.push((await list('/v1/usage')).ms)
    }
    await appliance.send('DELETE', `/v1/instances/${living.name}`)
    const after = (await (await list()).response.json()) as typeof listed
    const expected = listed.data.instances.map(record =>
      record === living ? { ...record, status: 'terminating', terminated_reason: 'deleted_via_api' } : record,
    )
    expect(after.data.instances).toEqual(expected)
    const changed: number[] = []
    for (let i = 0; i < triesMax; i += 1) {
      await appliance.create()
      changed.push((await list()).ms)
    }
    expect(Math.min(...changed)).toBeLessThan(20)
    expect(Math.min(...usage)).toBeLessThan(20)
    expect(Math.min(...warm)).toBeLessThan(20)
  })
})
