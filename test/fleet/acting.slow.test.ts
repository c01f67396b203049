// Processes that the fleet has not taken for their host yet. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { actingFor } from '../../src/fleet/acting.ts'
import { openFleetDirectory } from '../../src/fleet/directory/directory.ts'
import { fleetIdOf } from '../../src/fleet/directory/feed.ts'
import { joinHost } from '../../src/fleet/hosts/hosts.query.ts'
import { openStore } from '../../src/store/db.ts'
import { prepareUsageAppend } from '../../src/store/directory/usage/usage.query.ts'
import { usageRow } from '../rigs/gateway/usage-rows.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: until then it reports nothing, changes nothing and uses no budgets or shares of the host; afterwards it does,
// with what it has to report.
test.skipIf(missing)('a process that is not the host yet', async () => {
  const postgres = await connect(server, await newFleet(server))
  const store = openStore(':memory:')
  const { directory, hostId } = store
  await postgres.transact(async tx => {
    await joinHost(tx, { id: hostId, name: 'a', role: 'owner', nowMs: 0 })
    await tx.query("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o1', 'o1', 'active', 0)")
  })
  let reads = 0
  const reading = {
    ...postgres,
    query: ((...statement) => {
      reads += 1
      return postgres.query(...statement)
    }) as typeof postgres.query,
  }
  const adopt = () => {
    throw new Error('there are no instances here')
  }
  const fleet = openFleetDirectory(
    {
      ...{ directory, hostId, postgres: reading, adopt, sumsEveryMs: 100 },
      ...{ clock: systemClock, log: silentLogger, onApplied: () => {} },
    },
    await fleetIdOf(postgres),
  )
  const acting = actingFor(postgres, fleet.isMember)
  fleet.start()
  await until('the copy is whole', 30_000, () => fleet.waitsFor() === null)
  const append = prepareUsageAppend(directory.db)
  directory.transact(() => append([usageRow({ id: 'r1' })]))
  const reported = () => postgres.query<{ host_id: string }>('SELECT DISTINCT host_id FROM usage_months')
  const change = () => fleet.store.change(tx => tx.run("UPDATE organizations SET slug = 'o2'"))
  const notYet = async () => {
    expect((await failure(change())).code).toBe('fleet.unavailable')
    expect((await failure(acting.query('SELECT 1'))).code).toBe('fleet.unavailable')
    expect(acting.view().isReachable).toBe(false)
  }
  await notYet()
  // Changes are read every two seconds, and reports are due every second.
  const before = reads
  await until('reports have been due', 60_000, () => reads > before + 2)
  expect(await reported()).toEqual([])
  fleet.setMember(true)
  expect(acting.view().isReachable).toBe(true)
  await until('it has reported', 60_000, async () => (await reported()).length > 0)
  // The first answer shows that the directory's schema has generations.
  expect(await reported()).toEqual([{ host_id: expect.stringMatching(/^[^/]+$/) }])
  directory.transact(() => append([usageRow({ id: 'r2' })]))
  await until('it has reported with its generation', 60_000, async () => (await reported()).length > 1)
  expect((await reported()).map(row => row.host_id)).toContainEqual(expect.stringMatching(/\/[0-9a-f]{16}$/))
  await change()
  fleet.setMember(false)
  await notYet()
  fleet.setOlder()
  await acting.query('SELECT 1')
  await fleet.stop()
  store.close()
  await postgres.close()
})
