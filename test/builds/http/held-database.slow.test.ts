// Service C over HTTP while another process holds the lock of its database.

import { expect, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { randomNonce, source, startBuilds } from '../../../scripts/rigs/build/builds-service.ts'
import { BuildProblem } from '../../../src/contract/http/build-api.ts'
import { holdLock, leastMs } from '../../rigs/lock-holder.ts'

/** A statement holds the event loop for a second; one that tries again does so for two. */
const holdMsMax = 2_000

// Goal: a write is refused soon and whole, with the remedy, and leaves neither row nor file; reads go on; once the lock
// is free the same request, with the same nonce, succeeds.
test('a build, a cancel and a VM while the lock is held', async () => {
  await using rig = await startBuilds({ starts: false })
  const id = await rig.submit()
  const body = { nonce: randomNonce(), source_data: source.toString('base64') }
  const rows = () => rig.store().directory.db.all('SELECT id, state FROM builds')
  const files = () => readdirSync(join(rig.directory, 'builds'), { recursive: true }).toSorted()
  const before = [rows(), files()]
  const changing = [
    ['POST', '/build', { body }],
    ['DELETE', `/build/${id}`, {}],
    ['POST', '/vm', { body: {} }],
  ] as const
  let refused = 0
  {
    await using _ = await holdLock(join(rig.directory, 'strongroom.db'))
    for (const [method, path, options] of changing) {
      const tookMs = await leastMs(holdMsMax, async () => {
        refused += 1
        const answer = await rig.send(method, path, options)
        expect([path, answer.status, answer.headers.get('retry-after')]).toEqual([path, 503, '2'])
        expect(Value.Check(BuildProblem, answer.json)).toBe(true)
        expect(answer.json.error).toMatchObject({ message: expect.stringContaining('Nothing was changed') })
      })
      expect(tookMs).toBeLessThan(holdMsMax)
    }
    for (const path of [`/build/${id}`, `/build/${id}`, `/build/${id}`]) {
      const answer = await rig.send('GET', path)
      expect([answer.status, answer.json.job_id]).toEqual([200, id])
    }
  }
  expect([rows(), files()]).toEqual(before)
  expect(
    rig.logged.filter(line => line.includes('"level":"error"') && line.includes('database is locked')),
  ).toHaveLength(refused)
  expect((await rig.send('POST', '/build', { body })).status).toBe(200)
  expect((await rig.send('DELETE', `/build/${id}`)).status).toBeLessThan(300)
  expect(rows()).toHaveLength(2)
})
