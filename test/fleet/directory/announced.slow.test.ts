// Announcements of hosts to one another with each change. Real PostgreSQL and HTTP; VMs are files.

import { expect, test } from 'bun:test'
import { asOwner, targetOf } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { listenForChanges } from '../../../src/fleet/listener.ts'
import type { Announcement } from '../../../src/fleet/replica/announcement.codec.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a create wakes the host that gets the instance, its progress no host, a delete its host again, and a revoked
// key all. Polls would hide an announcement that is missing.
test.skipIf(missing)('an instance and a key', async () => {
  await using fleet = await openFleet(server)
  const east = await fleet.host('east')
  await fleet.host('west')
  const { database } = east.inside
  const heard: (Announcement | null)[] = []
  await using stop = new AsyncDisposableStack()
  const stopping = new AbortController()
  const listening = listenForChanges({
    target: targetOf(server, database),
    clock: systemClock,
    log: silentLogger,
    onChange: announcement => heard.push(announcement),
    signal: stopping.signal,
  })
  stop.defer(async () => {
    stopping.abort()
    await listening
  })
  await until('it listens', 60_000, () => heard.includes(null))
  const during = async (count: number, work: () => Promise<unknown>) => {
    heard.length = 0
    await work()
    await until('all is announced', 60_000, () => heard.length >= count)
    return heard.map(found => found?.hostIds ?? 'all')
  }
  let name = ''
  const created = await during(2, async () => {
    name = (await east.created()).name
    await until('ready', 60_000, async () => (await east.shown(name)).status === 'ready')
  })
  const hostIds = await asOwner(database, owner =>
    owner.query<{ id: string }>('SELECT host_id AS id FROM instances WHERE name = $1', [name]),
  )
  const of = hostIds.map(({ id }) => id)
  expect(of).toHaveLength(1)
  expect(created[0]).toEqual(of)
  for (const later of created) expect(later).not.toBe('all')
  const deleted = await during(1, async () => {
    expect((await east.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  })
  expect(deleted[0]).toEqual(of)
  const key = await east.newKey('globex')
  expect(await during(1, () => east.revoke(key))).toContain('all')
})
