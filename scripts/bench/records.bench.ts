// The list of 10,000 records over HTTP: the first one, one that has not changed, and one after a change, beside a
// constant body of the same size from the same kind of server. Loopback, without TLS; memory only.

import { newUuid } from '../../src/base/ids.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'
import { publicKey, startAppliance } from '../rigs/instances/instances-service.ts'
import type { Figures } from './bench-report.ts'
import { median } from './gateway/cost.ts'
import type { BenchContext } from './main.ts'

const recordCount = 10_000
const runs = 40

export async function run({ note, signal }: BenchContext): Promise<Figures> {
  await using appliance = await startAppliance({ requestsPerMinute: 1_000_000 })
  const { store, clock, port, keys } = appliance
  const organizationId = findOrganization(store.db, 'acme')?.id ?? ''
  store.transact(tx => {
    for (let index = 0; index < recordCount; index += 1) {
      const name = (100_000 + index).toString(36).padStart(8, '0')
      const id = newUuid()
      const nowMs = clock.nowMs() + index
      insertInstance(tx, {
        id,
        hostId: store.hostId,
        organizationId,
        name,
        hostname: `${name}.acme.agents.example`,
        agent: 'opencode',
        publicKey,
        inferenceMode: 'default_gateway',
        inferenceModel: 'tiny',
        vmId: null,
        nowMs,
      })
      moveInstance(tx, { id, from: 'provisioning', to: 'terminating', nowMs })
      moveInstance(tx, { id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
    }
  })
  const timed = async (url: string): Promise<{ ms: number; bytes: Uint8Array }> => {
    signal.throwIfAborted()
    const startedMs = performance.now()
    const response = await fetch(url, { headers: { authorization: `Bearer ${keys.acme}` } })
    const bytes = new Uint8Array(await response.arrayBuffer())
    return { ms: performance.now() - startedMs, bytes }
  }
  const many = async (url: string, before: () => Promise<unknown>): Promise<number> => {
    const seen: number[] = []
    for (let index = 0; index < runs; index += 1) {
      await before()
      seen.push((await timed(url)).ms)
    }
    return median(seen)
  }
  const list = `http://127.0.0.1:${port}/v1/instances`
  const first = await timed(list)
  note(`${recordCount} records, ${first.bytes.length} bytes`)
  await using constant = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response(first.bytes) })
  const nothing = async () => {}
  const constantMs = await many(`http://127.0.0.1:${constant.port}/`, nothing)
  const unchangedMs = await many(list, nothing)
  const changedMs = await many(list, () => appliance.create())
  return {
    list10000Ms: { value: unchangedMs, unit: 'ms', aim: { atMost: 20 }, baseline: 'constantBodyMs' },
    listAfterChange10000Ms: { value: changedMs, unit: 'ms', aim: null, baseline: 'constantBodyMs' },
    firstList10000Ms: { value: first.ms, unit: 'ms', aim: null, baseline: 'constantBodyMs' },
    constantBodyMs: { value: constantMs, unit: 'ms', aim: null },
  }
}
