// Goal: an instance's usage has the size of its VM and the host's points, and is empty without a VM.

import { expect, test } from 'bun:test'
import { instances } from '../../../src/store/directory/instance.table.ts'
import { asRoot } from '../../rigs/admin.ts'
import { egressAdmin, nowMs, vmId } from '../../rigs/instances/egress-admin.ts'

test('goal: points of its own VM, sizes in bytes, times as text', async () => {
  const asked: string[] = []
  const { admin, store } = egressAdmin({
    vmUsage: id => {
      asked.push(id)
      return [{ atMs: nowMs, cpus: 0.5, memoryBytes: 7, egressBytes: 9 }]
    },
  })
  const ask = async (ref: string) => {
    const response = await asRoot(admin)(new Request(`http://admin/instance/usage?ref=${ref}`))
    return { status: response.status, body: await response.json() }
  }
  expect(await ask('acme/abcd2345')).toEqual({
    status: 200,
    body: {
      vcpus: 1,
      memory_bytes: 536_870_912,
      points: [{ at: '2026-11-20T12:00:00.000Z', cpus: 0.5, memory_bytes: 7, egress_bytes: 9 }],
    },
  })
  expect(asked).toEqual([vmId])
  store.directory.db.update(instances).set({ vmId: null }).run()
  expect(await ask('acme/abcd2345')).toEqual({
    status: 200,
    body: { vcpus: null, memory_bytes: null, points: [] },
  })
  expect((await ask('acme/nothing1')).status).toBe(404)
  expect(asked).toHaveLength(1)
})
