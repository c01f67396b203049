// Reservations of build VMs over the hosts of a fleet: real PostgreSQL and HTTP, with build VMs that play scripts.

import { expect, test } from 'bun:test'
import { randomUUID } from 'node:crypto'
import { buildsSettings, certainClock } from '../../scripts/rigs/build/builds-service.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { insertBuildVm, listBuildVms } from '../../src/store/directory/build.query.ts'
import { openBuildFleet } from '../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

// Goal: a reservation that nobody uses ends on every host, and counts among the organization's builds until then.
test.skipIf(missing)('reservations count over hosts', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { perOrganizationMax: 1 }
  let offsetMs = 0
  const clock = { ...certainClock, nowMs: () => certainClock.nowMs() + offsetMs }
  const [east, west] = [await rig.host('east', { settings }), await rig.host('west', { settings, clock })]
  const { vm_id: vmId } = (await west.send('POST', '/vm')).json
  await until('east knows of it', 60_000, async () => (await east.send('GET', `/vm/${vmId}/health`)).status === 200)
  expect((await east.send('POST', '/build', { body: { nonce: '01', source_data: 'AAAA' } })).status).toBe(429)
  offsetMs = buildsSettings.reservedMs
  west.builds.vms.wake()
  await until('it is over', 60_000, async () => (await east.send('GET', `/vm/${vmId}/health`)).status === 404)
  await until('its VM is gone', 60_000, () => west.world.vms().every(({ state }) => state === 'gone'))
  await until('its place is free', 60_000, () => east.submit().catch(() => null))
})

// Goal: while the directory takes a reservation, a look at the host's VMs does not remove the VM that is not made yet.
// Otherwise its reservation would stay for ever, and count among the organization's builds.
test.skipIf(missing)('a reservation that the directory is slow to take', async () => {
  await using rig = await openBuildFleet(server)
  let offsetMs = 0
  const clock = { ...certainClock, nowMs: () => certainClock.nowMs() + offsetMs }
  const [east, west] = [await rig.host('east'), await rig.host('west', { clock })]
  const { db } = west.store.directory
  const rows = () => listBuildVms(db, west.hostId).map(({ vmId }) => vmId)
  const locked = Promise.withResolvers<void>()
  const isLooked = Promise.withResolvers<void>()
  const holding = rig.asOwner(owner =>
    owner.transact(async tx => {
      await tx.query('SELECT 1')
      locked.resolve()
      await isLooked.promise
    }),
  )
  await locked.promise
  const asked = west.send('POST', '/vm')
  await until('the host has reserved it', 60_000, () => rows().length === 1)
  // No VM is kept warm here, so a look removes this one, behind the older.
  const surplus = { vmId: randomUUID(), hostId: west.hostId, imageDigest: 'aa'.repeat(32), shape: 'a shape' } as const
  const owner = { organizationId: null, expiresAtMs: null } as const
  insertBuildVm(db, { ...surplus, ...owner, kind: 'warm', nowMs: clock.nowMs() + 1 })
  west.builds.vms.wake()
  await until('the host has looked', 60_000, () => !rows().includes(surplus.vmId))
  isLooked.resolve()
  await holding
  const { status, json } = await asked
  expect([status, rows()]).toEqual([200, [String(json.vm_id)]])
  const health = async () => (await east.send('GET', `/vm/${json.vm_id}/health`)).status
  await until('east knows of it', 60_000, async () => (await health()) === 200)
  offsetMs = buildsSettings.reservedMs
  west.builds.vms.wake()
  await until('it is over', 60_000, async () => (await health()) === 404)
})
