// How many connections a host has to the fleet's database. Real PostgreSQL and HTTP.

import { expect, test } from 'bun:test'
import { urlOfHost } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { openFleet } from '../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: after a burst a host is back at three connections, with the one that listens, while its work goes on.
test.skipIf(missing)('after a burst', async () => {
  await using fleet = await openFleet(server)
  const { inside } = await fleet.host('east')
  const role = new URL(urlOfHost(inside.database, inside.hostId)).username
  const count = async () => Number(await fleet.sql(`SELECT count(*) FROM pg_stat_activity WHERE usename = '${role}'`))
  await Promise.all(Array.from({ length: 8 }, () => inside.postgres.query('SELECT pg_sleep(0.5)')))
  expect(await count()).toBeGreaterThan(7)
  await until('the host is back at three connections', 45_000, async () => (await count()) <= 3)
})
