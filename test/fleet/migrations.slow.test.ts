// The directory's schema on a real PostgreSQL: steps, versions apart, several at once.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { addHosts, leaseOf, report } from '../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { checkSchema, FLEET_MIGRATIONS, migrateFleet, newestOf } from '../../src/fleet/migrations.ts'

const newest = newestOf()
const release = FLEET_MIGRATIONS.at(-1)?.release ?? 0
const step = (to: number, ahead: number) => ({
  to,
  release: release + ahead,
  name: `step ${to}`,
  sql: `CREATE TABLE step_${to} (id text PRIMARY KEY)`,
})
/** The next release has two steps, the one after it one. */
const next = [...FLEET_MIGRATIONS, step(newest + 1, 1), step(newest + 2, 1)]
const later = [...next, step(newest + 3, 2)]

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
    const broken = { ...step(newest + 2, 1), sql: 'CREATE TABLE half (id text); SELECT 1 / 0' }
    await failure(migrateFleet(postgres, [...FLEET_MIGRATIONS, step(newest + 1, 1), broken]))
    expect(await checkSchema(postgres)).toBe(newest)
    expect(
      await postgres.query(`SELECT to_regclass('half') AS half, to_regclass('step_${newest + 1}') AS step`),
    ).toEqual([{ half: null, step: null }])
    await postgres.close()
  })

  // Goal: hosts one release apart work on one directory; two apart is refused, by the host and by who would make it so.
  test('a host works one release behind', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'new', 'old', 'gone')
    const lease = (name: string, schema: number) =>
      leaseOf(postgres, name, { report: () => ({ places: 1, report: { ...report, schema } }) })
    await lease('gone', newest - 5).renew()
    await postgres.query('UPDATE clock SET served_ms = served_ms + 7000')
    await lease('new', newest + 2).renew()
    await lease('old', newest).renew()
    expect(await migrateFleet(postgres, next)).toEqual([`step ${newest + 1}`, `step ${newest + 2}`])
    expect(await checkSchema(postgres)).toBe(newest + 2)
    expect(await failure(migrateFleet(postgres, later))).toMatchObject({
      code: 'conflict',
      message: `upgrade these hosts first; they support only schemas before ${newest + 2}: old`,
    })
    await lease('old', newest + 2).renew()
    expect(await migrateFleet(postgres, later)).toEqual([`step ${newest + 3}`])
    expect(await checkSchema(postgres, next)).toBe(newest + 3)
    expect((await failure(checkSchema(postgres))).code).toBe('fleet.newer')
    expect((await failure(migrateFleet(postgres, next))).code).toBe('fleet.newer')
    await postgres.close()
  })
})
