// The directory's schema on a real PostgreSQL: steps, versions apart, several at once.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { addHosts, leaseOf, report } from '../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { checkSchema, FLEET_MIGRATIONS, migrateFleet, newestOf } from '../../src/fleet/migrations.ts'

const newest = newestOf()
const step = (to: number) => ({ to, name: `step ${to}`, sql: `CREATE TABLE step_${to} (id text PRIMARY KEY)` })
const later = [...FLEET_MIGRATIONS, step(newest + 1), step(newest + 2)]

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('the schema', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  // Goal: steps are numbered without a gap, are applied once, and two that come at once do not meet.
  test('is made once', async () => {
    expect(FLEET_MIGRATIONS.map(({ to }) => to)).toEqual(FLEET_MIGRATIONS.map((_, at) => at + 1))
    await server.run('CREATE DATABASE at_once')
    const url = server.url({ database: 'at_once' })
    const connections = [await connect(server, url), await connect(server, url), await connect(server, url)]
    expect((await failure(checkSchema(connections[0] as never))).code).toBe('fleet.older')
    const applied = await Promise.all(connections.map(postgres => migrateFleet(postgres)))
    expect(applied.flat()).toEqual(FLEET_MIGRATIONS.map(({ name }) => name))
    for (const postgres of connections) {
      expect(await checkSchema(postgres)).toBe(newest)
      await postgres.close()
    }
  })

  // Goal: a step that fails leaves nothing behind, and the next try begins where it was.
  test('a step that fails changes nothing', async () => {
    const postgres = await connect(server, await newFleet(server))
    const broken = { to: newest + 2, name: 'broken', sql: 'CREATE TABLE half (id text); SELECT 1 / 0' }
    await failure(migrateFleet(postgres, [...FLEET_MIGRATIONS, step(newest + 1), broken]))
    expect(await checkSchema(postgres)).toBe(newest)
    expect(await postgres.query("SELECT to_regclass('half') AS half, to_regclass('step_3') AS step")).toEqual([
      { half: null, step: null },
    ])
    await postgres.close()
  })

  // Goal: hosts one release apart work on one directory; two apart is refused, by the host and by who would make it so.
  test('a host works one step behind', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'new', 'old', 'gone')
    const lease = (name: string, schema: number) =>
      leaseOf(postgres, name, { report: () => ({ places: 1, report: { ...report, schema } }) })
    await lease('gone', newest - 5).renew()
    await postgres.query('UPDATE clock SET served_ms = served_ms + 7000')
    await lease('new', newest + 1).renew()
    await lease('old', newest).renew()
    expect(await migrateFleet(postgres, later.slice(0, -1))).toEqual([`step ${newest + 1}`])
    expect(await checkSchema(postgres, newest)).toBe(newest + 1)
    expect(await failure(migrateFleet(postgres, later))).toMatchObject({
      code: 'conflict',
      message: `upgrade these hosts first, they know schemas before ${newest + 1} alone: old`,
    })
    await lease('old', newest + 1).renew()
    expect(await migrateFleet(postgres, later)).toEqual([`step ${newest + 2}`])
    expect((await failure(checkSchema(postgres, newest))).code).toBe('fleet.newer')
    expect((await failure(migrateFleet(postgres))).code).toBe('fleet.newer')
    await postgres.close()
  })
})
