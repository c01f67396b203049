// Answers to clients while the synchronous standby of the database is away.

import { expect, test } from 'bun:test'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasFakeTime, PostgresPair } from '../../../scripts/rigs/postgres/pair.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { POSTGRES_LIMITS } from '../../../src/fleet/driver.ts'
import { commitUnknownMessage, directoryAwayMessage } from '../../../src/fleet/failures.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'

const backMs = 60_000
const needs = skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)')

// Goal: a server that started again shows what its standby lacks; a client whose create is there already has its answer
// only once the standby has it, too, so that it is not lost if that one takes over.
test.skipIf(needs)(
  'a repeated create waits for the standby',
  async () => {
    await using databases = await PostgresPair.open()
    await using fleet = await openFleet(databases.primary)
    const host = await fleet.host('first', { isUnhurried: false })
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
  240_000,
)

// Goal: a change that finds everything done already writes nothing, and still is acknowledged only once the standby has
// what it found, on the server that showed it.
test.skipIf(needs)(
  'a change that writes nothing waits for the standby',
  async () => {
    await using databases = await PostgresPair.open()
    await using fleet = await openFleet(databases.primary)
    const { inside, ...host } = await fleet.host('first', { isUnhurried: false })
    await host.created()
    await until('all is ready and reported', backMs, async () => {
      const [found] = await host.listed()
      return found?.status === 'ready' && inside.fleet.view().unreportedRows === 0
    })
    const change = () => inside.fleet.store.change(() => 'as it is')
    expect(await change()).toBe('as it is')
    await databases.standby.stop('kill')
    expect((await failure(change())).message).toBe(directoryAwayMessage)
    await databases.standby.start()
    await until('it is acknowledged', backMs, async () => (await change().catch(() => null)) === 'as it is')
    const { timeline } = inside.fleet.view()
    await inside.postgres.sync(timeline)
    expect((await failure(inside.postgres.sync(timeline + 1))).message).toBe(directoryAwayMessage)
  },
  240_000,
)

// Goal: nobody says that nothing was changed of a commit that is here and that the standby may still lack.
test.skipIf(needs)(
  'a commit that the standby lacks is not known',
  async () => {
    await using databases = await PostgresPair.open()
    const { primary } = databases
    const postgres = await connect(primary, await newFleet(primary), POSTGRES_LIMITS)
    await databases.standby.stop('kill')
    const add = "INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ('a', 'a', 'r', 0)"
    const failed = failure(postgres.transact(tx => tx.query(add)))
    await until('the commit waits for the standby', backMs, async () => {
      const ended = await primary.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'",
      )
      return ended.trim() === 't'
    })
    expect((await failed).message).toBe(commitUnknownMessage)
    expect(await postgres.query('SELECT id FROM hosts')).toEqual([{ id: 'a' }])
    await postgres.close()
  },
  240_000,
)
