// Hosts that the fleet removed or forgot, and that return. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { asOwner, connect, urlOfHost } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a removed host answers 503 and says why, for reads and changes and with keys that its copy has; its role's
// connections end with the locks that they hold. It serves again once it is a member again.
test.skipIf(missing)('a removed host answers for the fleet no more', async () => {
  await using fleet = await openFleet(server)
  const [stays, goes] = [await fleet.host('stays'), await fleet.host('goes')]
  expect((await goes.send('GET', '/v1/instances')).status).toBe(200)
  await stays.inside.postgres.transact(tx => tx.query("SELECT set_draining('goes', 1)"))
  const { database, hostId } = goes.inside
  const held = await connect(server, urlOfHost(database, hostId))
  let isHeld = false
  const holding = failure(
    held.transactPlain(async tx => {
      await tx.query('SELECT pg_advisory_xact_lock(7)')
      isHeld = true
      await tx.query('SELECT pg_sleep(25)')
    }),
  )
  await until('a session of the host holds a lock', 30_000, () => isHeld)
  await asOwner(database, owner =>
    createFleetAdmin({ postgres: owner, hostId: null, clock: systemClock }).remove('goes'),
  )
  // Ended by the removal: the statement alone would have taken far longer, and would have succeeded.
  expect((await holding).message).toContain('directory of this fleet')
  await held.close()
  // A change before the host has noticed, by the connection that it opens anew.
  const late = await failure(goes.inside.postgres.transact(tx => tx.query('SELECT 1')))
  expect([late.code, late.message]).toEqual(['fleet.unavailable', expect.stringContaining('not a member of its fleet')])
  await until('it has noticed', 30_000, async () => (await goes.send('GET', '/v1/instances')).status === 503)
  for (const answer of [await goes.send('GET', '/v1/instances'), await goes.create()]) {
    expect([answer.status, answer.retryAfter]).toEqual([503, '2'])
    expect(answer.body.error.message).toContain('not a member of its fleet')
  }
  expect((await stays.send('GET', '/v1/instances')).status).toBe(200)
  await fleet.joins('goes')
  await until('it serves again', 30_000, async () => (await goes.send('GET', '/v1/instances')).status === 200)
  expect((await goes.create()).status).toBe(202)
})
