// A commit whose server is killed before it got there. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { connect, newFleet } from '../../scripts/rigs/postgres/fleet.ts'
import { startProxy } from '../../scripts/rigs/postgres/proxy.ts'
import { hasPostgres, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'

/** Transactions of others: a killed server gives them the numbers that it had not written down. */
const others = `DO $$ BEGIN
  FOR i IN 1..40 LOOP INSERT INTO strongroom.outboxes VALUES (i::text, 1); COMMIT; END LOOP;
END $$`

// Goal: a change is not taken for committed because another transaction got its number after a crash of the server.
test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'a number that is given twice',
  async () => {
    await using server = await startPostgres()
    const database = await newFleet(server)
    await using proxy = await startProxy(server.port)
    const postgres = await connect(server, database.replace(`:${server.port}/`, `:${proxy.port}/`))
    await postgres.query('SELECT 1')
    let rest: Promise<unknown> = Promise.resolve()
    const outcome = postgres
      .transact(async tx => {
        await tx.query("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o', 'o', 'active', 1)")
        proxy.set('before-commit')
        rest = server
          .stop('kill')
          .then(() => server.start())
          .then(() => server.run(others, new URL(database).pathname.slice(1)))
      })
      .then(
        () => 'committed',
        (error: { code?: string }) => error.code,
      )
    expect(await outcome).toBe('fleet.unavailable')
    await rest
    expect(await server.run('SELECT count(*) FROM strongroom.organizations', new URL(database).pathname.slice(1))).toBe(
      '0\n',
    )
    await postgres.close()
  },
  60_000,
)
