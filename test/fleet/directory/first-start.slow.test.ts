// The first start of a host whose fleet's database is away, and until its first copy is whole. Real PostgreSQL and
// HTTP.

import { expect, test } from 'bun:test'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a host that starts before the database serves: 503 and not 401 for keys that it cannot know yet, no name said
// to be absent, its reason told; and it goes on by itself once the database answers.
test.skipIf(missing)('without the database', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const stays = await fleet.host('stays', { isDirect: true, places: 1 })
  const { name, hostname } = await stays.created()
  await until('ready', 60_000, async () => (await stays.shown(name)).status === 'ready')
  await fleet.joins('late')
  fleet.cut()
  const late = await fleet.host('late', { isJoined: true, places: 5 })
  for (const [method, path] of [
    ['GET', '/v1/instances'],
    ['GET', `/v1/instances/${name}`],
    ['GET', '/v1/usage'],
    ['POST', '/v1/instances'],
    ['DELETE', `/v1/instances/${name}`],
  ] as const) {
    const { status, retryAfter, body } = await late.send(method, path)
    expect([path, status, retryAfter]).toEqual([path, 503, '2'])
    expect(body.error.message).toContain('cannot be reached at present')
  }
  expect(late.inside.fleet.waitsFor()).toContain('the database of the fleet')
  expect(late.inside.fleet.view()).toEqual({ version: 0, timeline: 0, unreportedRows: 0 })
  expect([late.addressOf(hostname), late.inside.isAbsent(hostname)]).toEqual([null, false])
  fleet.restore()
  await until('it has its copy', 60_000, () => late.inside.fleet.waitsFor() === null)
  await until('it shows it', 60_000, async () => (await late.shown(name)).status === 'ready')
  await until('it names it', 60_000, () => late.addressOf(hostname) === stays.addressOf(hostname))
  await until('what is not there is absent again', 60_000, () => late.inside.isAbsent('none.acme.agents.test'))
  const made = await late.created()
  await until('and takes instances', 60_000, async () => (await stays.shown(made.name)).status === 'ready')
  expect(late.vms()).toHaveLength(1)
})

// Goal: half a copy is none: nothing is shown before the first one is whole, and a key is not unknown meanwhile.
test.skipIf(missing)('until the first copy is whole', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const stays = await fleet.host('stays', { isDirect: true })
  const { name } = await stays.created()
  await fleet.sql(
    'DELETE FROM strongroom.changes; UPDATE strongroom.trimmed SET version = (SELECT version FROM strongroom.fleet)',
  )
  await fleet.joins('late')
  fleet.cut()
  const late = await fleet.host('late', { isJoined: true })
  const { db } = late.inside.store.directory
  // As a snapshot that was interrupted after its first table.
  db.run(
    `INSERT INTO replica SELECT 1, '${await fleet.sql('SELECT id FROM strongroom.fleet')}', 0, 0, 0, 0, 0, NULL, '', '', ''`,
  )
  await late.inside.store.directory.transact(tx =>
    tx.run("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('x', 'half', 'active', 0)"),
  )
  expect(late.inside.fleet.waitsFor()).toContain('the first copy of the directory')
  expect((await late.send('GET', '/v1/instances')).status).toBe(503)
  fleet.restore()
  await until('whole', 60_000, () => late.inside.fleet.waitsFor() === null)
  expect((await late.listed()).map(found => found.name)).toEqual([name])
  expect(db.all<{ slug: string }>('SELECT slug FROM organizations').map(({ slug }) => slug)).toEqual(['acme'])
})
