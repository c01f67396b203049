// Service A over HTTP, with its database on a small file system that is full.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { listInstances } from '../../../src/store/directory/instance.query.ts'
import { failed, play } from '../../rigs/scenario.ts'
import { fillDisk, smallDisk } from '../../rigs/small-disk.ts'

const diskMib = 8
/** The database's log has some room left within its file. */
const createsMax = 2_000

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: accepted instances stay whole, creates are refused with the remedy, and with room again all goes on.
    test('creates are refused and nothing of them stays', async () => {
      const mounted = mkdtempSync(join(tmpdir(), 'strongroom-test-'))
      using _ = smallDisk(mounted, diskMib)
      const directory = join(mounted, 'state')
      mkdirSync(directory)
      await using appliance = await startAppliance({ directory })
      const { organizationId } = await appliance.create()
      const ballast = fillDisk(mounted)
      const create = (key: string) =>
        appliance.send('POST', '/v1/instances', {
          body: { public_key: publicKey },
          headers: { 'Idempotency-Key': key },
        })
      let accepted = 1
      while (accepted < createsMax && (await create(`n${accepted}`)).status === 202) accepted += 1
      const calls = appliance.calls.length
      await play(appliance, {
        goal: 'creates on a full disk',
        method: 'POST',
        path: '/v1/instances',
        body: { public_key: publicKey },
        status: 503,
        headers: { 'Idempotency-Key': `n${accepted}` },
        answer: failed(
          'internal_error',
          'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request again after the time in Retry-After.',
        ),
        expectHeaders: { 'retry-after': '30' },
      })
      expect(appliance.calls.length).toBe(calls)
      expect(appliance.logged.join('\n')).toMatch(/database or disk is full|disk I\/O error/)
      const list = await appliance.send('GET', '/v1/instances')
      expect([list.status, Object(list.data).instances.length]).toEqual([200, accepted])

      rmSync(ballast)
      expect((await create(`n${accepted}`)).status).toBe(202)
      await using again = await appliance.restart()
      expect(listInstances(again.store.db, organizationId)).toHaveLength(accepted + 1)
      expect(again.store.db.all<object>('PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }])
      expect((await again.send('GET', '/v1/usage')).status).toBe(200)
    })
  },
  { timeoutMs: 60_000 },
)
