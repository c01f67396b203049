// Many creates at once against the warm pool, on a whole host without QEMU. Real SQLite, manual clock.

import { expect, test } from 'bun:test'
import { roomy, spec } from '../rigs/vm-engine.ts'
import { poolBench } from '../rigs/warm-pool.ts'

test('a hundred at once against a pool of three: three are warm, the rest cold or refused, no VM is two', async () => {
  // Goal: the issue's own figure, on a host with room for five VMs.
  const b = poolBench({ wanted: 3, capacity: { ...roomy, memoryMib: 5 * spec.memoryMib } })
  const host = b.startHost()
  await b.bootAll()
  const warm = b.pooled()
  expect(warm).toHaveLength(3)
  const names = await Promise.all(Array.from({ length: 100 }, async () => host.create()))
  expect(new Set(names.map(name => b.instance(name).vmId)).size).toBe(100)
  await b.bootAll()
  await b.clock.elapse(1_000)
  const rows = names.map(b.instance)
  const ready = rows.filter(row => row.status === 'ready')
  expect(ready.map(row => row.vmId)).toEqual(expect.arrayContaining(warm))
  expect(ready).toHaveLength(5)
  const refused = rows.filter(row => row.status === 'failed')
  expect(refused.map(row => row.failureCode)).toEqual(Array.from({ length: 95 }, () => 'capacity_exhausted'))
  expect(new Set(b.claims.map(claim => claim.vmId)).size).toBe(b.claims.length)
  expect(host.pool.counts().creates).toEqual({ warm: 3, booting: 0, cold: 97 })
  expect(b.pooled()).toEqual([])
  expect(host.pool.status()).toMatchObject({ warm: 0, booting: 0, lacking: 'memory', lastFailure: null })
  await host.end()
})
