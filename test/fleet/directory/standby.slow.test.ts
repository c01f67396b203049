// Answers to clients while the synchronous standby of the database is away.

import { expect, test } from 'bun:test'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'
import { hasFakeTime, PostgresPair } from '../../rigs/postgres/pair.ts'

const backMs = 30_000

// Goal: a server that started again shows what its standby lacks; a client whose create is there already has its answer
// only once the standby has it, too, so that it is not lost if that one takes over.
test.skipIf(skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)'))(
  'a repeated create waits for the standby',
  async () => {
    await using databases = await PostgresPair.open()
    await using fleet = await openFleet(databases.primary)
    const host = await fleet.host('first')
    await databases.standby.stop('kill')
    const create = () => host.create({ idempotencyKey: 'k' })
    expect((await create()).status).toBe(503)
    // It is committed here, and shown after the restart.
    await databases.primary.stop('kill')
    await databases.primary.start()
    await until('the host knows the instance', backMs, async () => (await host.listed()).length === 1)
    expect((await create()).status).toBe(503)
    await databases.standby.start()
    await until('the create is acknowledged', backMs, async () => (await create()).status === 202)
    expect(await host.listed()).toHaveLength(1)
  },
  120_000,
)
