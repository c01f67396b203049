// Hosts enter a fleet, leave it and get another role, without the command line's own program.

import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { patientLimits } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { initFleet, joinFleet, leaveFleet, type MemberParts, rebindAs } from '../../../src/cli/fleet/members.ts'
import type { PostgresTarget } from '../../../src/fleet/driver.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { FLEET_MIGRATIONS } from '../../../src/fleet/migrations.ts'
import { openPostgres, type Sql } from '../../../src/fleet/postgres.ts'
import { Replica } from '../../../src/fleet/replica/replica.ts'
import { databaseFile } from '../../../src/host/state-files.ts'
import { openStore } from '../../../src/store/db.ts'

setDefaultTimeout(300_000)

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

// Goal: the role that owns the database does it alone; it need not be a superuser, and each step is on record.
test.skipIf(missing)('members come and go by the owner', async () => {
  await using undo = new AsyncDisposableStack()
  const server = undo.use(await startPostgres())
  const root = mkdtempSync(join(tmpdir(), 'srt-members-'))
  undo.defer(() => rmSync(root, { recursive: true, force: true }))
  for (const role of ['rack_a', 'rack_b', 'rack_c', 'fleet_owner']) await server.run(`CREATE ROLE ${role} LOGIN`)
  await server.run('CREATE DATABASE fleet OWNER fleet_owner')
  const target = (user: string): PostgresTarget => ({
    ...{ host: '127.0.0.1', port: server.port, user, password: null, database: 'fleet' },
    ...{ caPem: null, applicationName: 'test' },
  })
  const parts = (name: string, { role = `rack_${name}`, isOwned = true } = {}): MemberParts => ({
    target: target(role),
    owner: isOwned ? target('fleet_owner') : null,
    name: `rack-${name}`,
    stateDir: join(root, name),
    clock: systemClock,
  })
  let ownerSql: Sql['query'] = async () => []
  const adminAs = async (role: string) => {
    const connection = { target: target(role), limits: patientLimits, clock: systemClock, log: silentLogger }
    const postgres = await openPostgres(connection)
    undo.defer(() => postgres.close())
    if (role === 'fleet_owner') ownerSql = postgres.query
    return createFleetAdmin({ postgres, hostId: null, clock: systemClock })
  }
  const codeOf = async (work: Promise<unknown>) => (await failure(work)).code

  expect((await initFleet(parts('a'))).applied).toHaveLength(FLEET_MIGRATIONS.length)
  expect((await initFleet(parts('a'))).applied).toEqual([])
  // Without the owner, with the role of nobody and with the role of a host.
  expect(await codeOf(joinFleet(parts('b', { isOwned: false })))).toBe('fleet.forbidden')
  await joinFleet(parts('b'))
  await joinFleet(parts('b', { isOwned: false }))
  expect(await codeOf(joinFleet(parts('c', { role: 'rack_b', isOwned: false })))).toBe('fleet.forbidden')
  expect(await codeOf(joinFleet(parts('c', { role: 'rack_b' })))).toBe('conflict')

  const toC = { name: 'rack-b', role: 'rack_c' }
  expect(await codeOf(rebindAs(target('rack_a'), toC))).toBe('fleet.forbidden')
  expect(await codeOf(rebindAs(target('fleet_owner'), { name: 'rack-b', role: 'rack_a' }))).toBe('conflict')
  expect(await rebindAs(target('fleet_owner'), toC)).toEqual(toC)
  // The role that it had is left without any right.
  expect((await failure((await adminAs('rack_b')).list())).message).toMatch(/does not exist|permission denied/)
  await joinFleet(parts('b'))

  const [host, owner] = [await adminAs('rack_a'), await adminAs('fleet_owner')]
  expect((await host.list()).map(({ role }) => role)).toEqual(['rack_a', 'rack_b'])
  await host.drain('rack-b')
  expect(await codeOf(host.remove('rack-b'))).toBe('fleet.forbidden')
  expect(await codeOf(host.forget('rack-b'))).toBe('fleet.forbidden')
  await owner.remove('rack-b')
  const { fleet } = await host.actions({ sinceMs: null, limit: 50 })
  expect(fleet?.problem).toBeNull()
  expect(fleet?.actions.map(({ host, database_role: role, action, subject }) => [host, role, action, subject])).toEqual(
    [
      [null, 'fleet_owner', 'host.joined', 'rack-a'],
      [null, 'fleet_owner', 'host.joined', 'rack-b'],
      [null, 'fleet_owner', 'host.rebound', 'rack-b'],
      [null, 'fleet_owner', 'host.rebound', 'rack-b'],
      ['rack-a', 'rack_a', 'host.drained', 'rack-b'],
      [null, 'fleet_owner', 'host.removed', 'rack-b'],
    ],
  )

  // Its records are a copy of this fleet's, so it may return with them; not with those of another fleet.
  const organization = "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o', 'acme', 'active', 1)"
  const records = openStore(join(root, 'b', databaseFile))
  records.directory.db.run(organization)
  const copyOf = (fleetId: string) => {
    records.directory.db.run('DELETE FROM replica')
    new Replica({ directory: records.directory, hostId: records.hostId, adopt: () => ({ vmId: '' }) }).begin(fleetId)
  }
  expect(await failure(joinFleet(parts('b')))).toMatchObject({ code: 'conflict' })
  records.directory.db.run('DELETE FROM organizations')
  copyOf(crypto.randomUUID())
  records.directory.db.run(organization)
  expect(await failure(joinFleet(parts('b')))).toMatchObject({ code: 'conflict' })
  const [{ id } = { id: '' }] = await ownerSql<{ id: string }>('SELECT id::text AS id FROM fleet')
  records.directory.db.run('DELETE FROM organizations')
  copyOf(id)
  records.directory.db.run(organization)
  // Records that are on their way into a directory are no copy of it.
  records.directory.db.run('UPDATE replica SET is_seeding = 1')
  expect(await failure(joinFleet(parts('b')))).toMatchObject({ code: 'conflict' })
  records.directory.db.run('UPDATE replica SET is_seeding = 0')
  expect((await joinFleet(parts('b'))).hostId).toBe(records.hostId)
  records.close()
  await owner.drain('rack-b')
  await owner.remove('rack-b')
  expect(await leaveFleet(parts('a'))).toBe(0)
})
