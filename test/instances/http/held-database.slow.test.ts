// Service A over HTTP while another process holds the lock of its database.

import { expect, test } from 'bun:test'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { listInstances } from '../../../src/store/directory/instance.query.ts'
import { holdLock, leastMs } from '../../rigs/lock-holder.ts'
import { failed, play } from '../../rigs/scenario.ts'

/** A statement holds the event loop for a second; one that tries again does so for two. */
const holdMsMax = 2_000

// Goal: writes are refused soon and whole, with the remedy; reads go on; once the lock is free the same request
// succeeds once.
test('a create and a delete while the lock is held', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-test-'))
  await using appliance = await startAppliance({ directory })
  const { store } = appliance
  const { id, name, organizationId } = await appliance.create()
  const calls = appliance.calls.length
  const refused = {
    status: 503,
    answer: failed(
      'internal_error',
      'The database of this service is locked by another program. Nothing was changed; send the request again after the time in Retry-After.',
    ),
    expectHeaders: { 'retry-after': '2' },
  }
  const create = { method: 'POST', path: '/v1/instances', body: { public_key: publicKey } } as const
  const headers = { 'Idempotency-Key': 'once' }
  let creates = 0
  {
    await using _ = await holdLock(join(directory, 'strongroom.db'))
    const tookMs = await leastMs(holdMsMax, async () => {
      creates += 1
      await play(appliance, { goal: 'creates', ...create, headers, ...refused })
    })
    expect(tookMs).toBeLessThan(holdMsMax)
    await play(appliance, { goal: 'deletes', method: 'DELETE', path: `/v1/instances/${name}`, ...refused })
    // Reads wait for nobody. The use of the key, which is not noted meanwhile, is not tried for each of them.
    appliance.clock.advance(61_000)
    await appliance.send('GET', '/v1/instances')
    // One that waited would take a second for each.
    const readMs = await leastMs(2_000, async () => {
      for (let n = 0; n < 5; n += 1) {
        const answer = await appliance.send('GET', '/v1/instances')
        expect([answer.status, answer.text.includes(name)]).toEqual([200, true])
      }
    })
    expect(readMs).toBeLessThan(2_000)
  }
  expect(listInstances(store.db, organizationId).map(row => [row.id, row.status])).toEqual([[id, 'provisioning']])
  expect(appliance.calls.length).toBe(calls)
  const causes = appliance.logged.filter(
    line => line.includes('"level":"error"') && line.includes('database is locked'),
  )
  expect(causes).toHaveLength(creates + 1)

  const [first, again] = [
    await appliance.send('POST', '/v1/instances', { ...create, headers }),
    await appliance.send('POST', '/v1/instances', { ...create, headers }),
  ]
  expect([first.status, again.status, again.data]).toEqual([202, 202, first.data])
  expect((await appliance.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  expect(listInstances(store.db, organizationId)).toHaveLength(2)
})
