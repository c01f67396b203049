// Processes that the fleet has not taken for their host yet. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
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

// Goal: until then it reports nothing, changes nothing, uses no budgets or shares of the host and begins none of its
// instances; afterwards it does, with what it has to report.
test.skipIf(missing)('a process that is not the host yet', async () => {
  const postgres = await connect(server, await newFleet(server))
  const store = openStore(':memory:')
  const { directory, hostId } = store
  await postgres.transact(async tx => {
    await joinHost(tx, { id: hostId, name: 'a', role: 'owner', nowMs: 0 })
    await tx.query("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o1', 'o1', 'active', 0)")
  })
  let pauses = 0
  const clock: Clock = {
    ...systemClock,
    sleep: (...args) => {
      pauses += 1
      return systemClock.sleep(...args)
    },
  }
  const adopted: string[] = []
  const adopt = (_tx: unknown, id: string) => {
    adopted.push(id)
    return { vmId: `vm-${id}` }
  }
  const followed: string[] = []
  const addInstance = (id: string) =>
    postgres.transact(tx =>
      tx.query(
        `INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key,
           inference_mode, inference_model, created_at_ms, changed_at_ms)
         VALUES ($1::text, $2::text, 'o1', $1, $1, 'present', 'provisioning', 'a', 'k', 'm', 'm', 1, 1)`,
        [id, hostId],
      ),
    )
  await addInstance('i1')
  const fleet = openFleetDirectory(
    {
      ...{ directory, hostId, postgres, adopt, sumsEveryMs: 100, clock, log: silentLogger },
      onApplied: ({ instances }) => followed.push(...instances.map(({ id, isNew }) => `${id} ${isNew}`)),
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
  // Both repeat after at most two seconds, and pause twice each time.
  const repeated = async () => {
    const before = pauses
    await until('changes and reports have been due', 60_000, () => pauses > before + 12)
  }
  await addInstance('i2')
  fleet.wake(null)
  await repeated()
  await fleet.store.read(null, () => {})
  expect(await reported()).toEqual([])
  const vms = () =>
    directory.db.all<{ id: string; vm_id: string | null }>('SELECT id, vm_id FROM instances ORDER BY id')
  // It follows changes, as keys that another host revokes, and gives no VM to an instance.
  const without = ['i1', 'i2'].map(id => ({ id, vm_id: null }))
  expect([adopted, vms()]).toEqual([[], without])
  followed.length = 0
  fleet.setMember(true)
  expect([adopted, followed]).toEqual([
    ['i1', 'i2'],
    ['i1 true', 'i2 true'],
  ])
  expect(vms().map(row => row.vm_id)).toEqual(['vm-i1', 'vm-i2'])
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
  await addInstance('i3')
  fleet.wake(null)
  await repeated()
  expect(adopted).toEqual(['i1', 'i2'])
  fleet.setOlder()
  await acting.query('SELECT 1')
  await fleet.stop()
  store.close()
  await postgres.close()
})
