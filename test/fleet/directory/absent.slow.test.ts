// Names and keys that a host's copy lacks while the database is away. Real PostgreSQL and HTTP.

import { expect, test } from 'bun:test'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a host says that an instance does not exist, or that a key is wrong, only if it has all changes: another host
// may have acknowledged it.
test.skipIf(missing)('without the database', async () => {
  await using fleet = await openFleet(server)
  const host = await fleet.host('east')
  const { name } = await host.created()
  const read = (path: string) => host.send('GET', `/v1/instances/${path}`)
  expect((await read('no-such-name')).status).toBe(404)
  const { key } = mintKey(systemRandom)
  const unknown = async () => {
    const { status, body } = await host.send('GET', '/v1/instances', { key })
    return [status, body.error.message.includes('another host may')]
  }
  expect(await unknown()).toEqual([401, false])
  await server.stop('kill')
  const absent = await read('no-such-name')
  expect([absent.status, absent.retryAfter]).toEqual([503, '2'])
  expect(absent.body.error.message).toContain('another host may')
  expect(await unknown()).toEqual([503, true])
  expect((await read(name)).status).toBe(200)
  await server.start()
  await until('the host has all changes again', 60_000, async () => (await read('no-such-name')).status === 404)
  expect(await unknown()).toEqual([401, false])
})
