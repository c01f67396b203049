// Goal: a host has every sum of usage that another one reported, whatever the order of commits, the number of rows, the
// server or the directory's schema. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { type BooksHost, organizationId } from '../../../scripts/rigs/fleet/budgets-host.ts'
import { asOwner, connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Copy } from '../../../src/fleet/directory/copy.ts'
import { fleetIdOf } from '../../../src/fleet/directory/feed.ts'
import { readSums } from '../../../src/fleet/directory/sums.ts'
import { sums } from '../../../src/fleet/migrations/0023-sums.ts'
import type { Postgres, Sql } from '../../../src/fleet/postgres.ts'
import { Replica } from '../../../src/fleet/replica/replica.ts'
import { SumsMark } from '../../../src/fleet/replica/sums-mark.ts'
import { openStore } from '../../../src/store/db.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import { type BooksFleet, openBooksFleet } from '../../rigs/fleet/books-fleet.ts'
import { usageRow } from '../../rigs/gateway/usage-rows.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

/** Sums of other hosts: a month with some requests for each key. */
const reportOf = (keys: readonly string[], requests: number | string = 1) =>
  `INSERT INTO strongroom.usage_months SELECT '${organizationId}', '2026-11', key, 'other', ${requests}, 1, 1, 1
   FROM unnest(ARRAY['${keys.join("','")}']) AS key
   ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET requests = excluded.requests`

const keysOn = ({ directory }: BooksHost) =>
  directory.db
    .all<{ key: string; requests: number }>(
      "SELECT key_prefix AS key, requests FROM usage_months WHERE host_id = 'other' ORDER BY key_prefix",
    )
    .map(({ key, requests }) => `${key} ${requests}`)

/** Removes the sum of another host from the copy alone. */
function removeHere(host: BooksHost, key: string): void {
  const before = keysOn(host).length
  host.directory.transact(tx => {
    tx.run('UPDATE replica SET is_applying = 1')
    tx.run(`DELETE FROM usage_months WHERE key_prefix = '${key}'`)
    tx.run('UPDATE replica SET is_applying = 0')
  })
  expect(keysOn(host)).toHaveLength(before - 1)
}

async function readingHost(fleet: BooksFleet): Promise<BooksHost> {
  const host = await fleet.host('west')
  await host.seed({ keys: {}, organization: null })
  await until('it has read', 60_000, () => markOf(host) !== '')
  return host
}

const markOf = ({ directory }: BooksHost) =>
  directory.db.all<{ mark: string }>('SELECT sums_mark AS mark FROM replica')[0]?.mark ?? ''

// Goal: a transaction that commits after a reading is read, although a later one was read before it.
test.skipIf(missing)('reports commit in another order than they began', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await readingHost(fleet)
  const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const early = fleet.asOwner(owner =>
    owner.transactPlain(async tx => {
      await tx.query(reportOf(['early']))
      begun.resolve()
      await mayEnd.promise
    }),
  )
  await begun.promise
  for (const [requests, key] of ['later', 'later', 'last'].entries()) {
    await fleet.sql(reportOf([key], requests + 1))
    await until(key, 60_000, () => keysOn(host).includes(`${key} ${requests + 1}`))
  }
  expect(keysOn(host)).toEqual(['last 3', 'later 2'])
  mayEnd.resolve()
  await early
  await until('the first one', 60_000, () => keysOn(host).length === 3)
})

// Goal: all rows of several pages are read, once, and a later reading does not bring them again.
test.skipIf(missing)('more than a page', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await readingHost(fleet)
  const keys = (part: number) => Array.from({ length: 700 }, (_, index) => `${part}-${index}`)
  await fleet.asOwner(async owner => {
    for (const part of [1, 2, 3]) await owner.query(reportOf(keys(part)))
  })
  await until('all rows', 60_000, () => keysOn(host).length === 2_100)
  const mark = markOf(host)
  // Not read again: a row that is gone here alone stays away.
  removeHere(host, '1-1')
  await fleet.sql(reportOf(['new']))
  await until('another reading', 60_000, () => keysOn(host).includes('new 1'))
  expect(keysOn(host)).toHaveLength(2_100)
  expect(markOf(host)).not.toBe(mark)
})

// Goal: no number of rows that one transaction wrote, by a host that does not keep to batches, hides some of them.
test.skipIf(missing)('more than many pages in one transaction', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await readingHost(fleet)
  await fleet.sql(`INSERT INTO strongroom.usage_months
    SELECT '${organizationId}', '2026-11', n::text, 'other', 1, 1, 1, 1 FROM generate_series(1, 12000) AS n`)
  await fleet.sql(reportOf(['last']))
  await until('all rows', 60_000, () => keysOn(host).length === 12_001)
})

// Goal: one host cannot stop the readers with a sum that no copy can hold.
test.skipIf(missing)('a sum beyond what is exact', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await readingHost(fleet)
  for (const requests of ['9223372036854775807', '9007199254740992', '-1']) {
    await expect(fleet.asOwner(owner => owner.query(reportOf(['bad'], requests)))).rejects.toThrow()
  }
  await fleet.sql(reportOf(['good'], '9007199254740991'))
  await until('the other one', 60_000, () => keysOn(host).includes('good 9007199254740991'))
})

// Goal: numbers of another server's transactions say nothing: all sums are read, as after a restore elsewhere.
test.skipIf(missing)('another server, and an older copy of its disk', async () => {
  await using fleet = await openBooksFleet(server)
  let host = await readingHost(fleet)
  await fleet.sql(reportOf(['kept']))
  await until('the sum', 60_000, () => keysOn(host).length === 1)
  const later = (mark: string) => mark.replace(/[0-9]+:[0-9]+:.*$/, '99999999:99999999:')
  for (const changed of [(mark: string) => `1${mark}`, later]) {
    removeHere(host, 'kept')
    // The process reads it at its next start.
    const mark = changed(markOf(host))
    host.directory.db.run(`UPDATE replica SET sums_mark = '${mark}'`)
    await host[Symbol.asyncDispose]()
    host = await fleet.host('west')
    await until('it is here again', 60_000, () => keysOn(host).length === 1 && markOf(host) !== mark)
  }
})

// Goal: a restored dump lacks sums, and no change that would show it: the host reports its sums again, also one that
// was down, and one that reports something else before it has read that. The dump may have none of its reports.
test.skipIf(missing).each([
  ['it runs', false],
  ['it is down', false],
  ['it is down', true],
])('a directory that is restored without later changes: %s, books first: %p', async (when, isBookedFirst) => {
  await using fleet = await openBooksFleet(server)
  let host = await readingHost(fleet)
  const book = (id: string) => host.directory.transact(() => prepareUsageAppend(host.directory.db)([usageRow({ id })]))
  const there = () => fleet.sql("SELECT sum(requests) FROM strongroom.usage_months WHERE key_prefix = ''")
  if (when === 'it runs') {
    book('before')
    await until('the first', 60_000, async () => (await there()).includes('1'))
  }
  await fleet.sql(
    ['usage_months', 'usage_days', 'outboxes'].map(t => `CREATE TABLE ${t} AS TABLE strongroom.${t};`).join(''),
  )
  book('after')
  const total = when === 'it runs' ? 2 : 1
  await until('the second', 60_000, async () => (await there()).includes(String(total)))
  if (when === 'it is down') {
    await until('it has the answer', 60_000, () => host.fleet.view().unreportedRows === 0)
    await host[Symbol.asyncDispose]()
  }
  await fleet.sql(`DELETE FROM strongroom.outboxes; INSERT INTO strongroom.outboxes SELECT * FROM outboxes;
    BEGIN; SELECT strongroom.begin_change(true); DELETE FROM strongroom.usage_months; DELETE FROM strongroom.usage_days;
    DELETE FROM strongroom.changes WHERE version = (SELECT version FROM strongroom.fleet);
    UPDATE strongroom.fleet SET version = version - 1; COMMIT;
    INSERT INTO strongroom.usage_months SELECT * FROM usage_months; INSERT INTO strongroom.usage_days SELECT * FROM usage_days`)
  expect(await there()).not.toContain(String(total))
  if (when === 'it is down') host = await fleet.host('west')
  if (isBookedFirst) book('later')
  const expected = String(total + (isBookedFirst ? 1 : 0))
  await until('it is reported again', 60_000, async () => (await there()).includes(expected))
})

const schema22 = `
  DROP FUNCTION number_sum CASCADE;
  ${['usage_months', 'usage_days'].map(table => `ALTER TABLE ${table} DROP COLUMN reported, DROP CONSTRAINT amounts;`).join('')}`

// Goal: sums go the way that the directory's schema has, also when it changes under the hosts.
test.skipIf(missing)('a directory of an older schema', async () => {
  await using fleet = await openBooksFleet(server)
  const [east, west] = [await fleet.host('east'), await readingHost(fleet)]
  const change = (text: string) => fleet.asOwner(owner => owner.transactPlain((tx: Sql) => tx.query(text)))
  const lines = () => fleet.sql("SELECT count(*) FROM strongroom.changes WHERE table_name LIKE 'usage%'")
  const requestsOn = ({ directory }: BooksHost) =>
    directory.db.all<{ n: number }>("SELECT sum(requests) AS n FROM usage_months WHERE key_prefix = ''")[0]?.n
  const book = async (id: string, of: BooksHost, total: number) => {
    of.directory.transact(() => prepareUsageAppend(of.directory.db)([usageRow({ id })]))
    for (const host of [east, west]) await until(`${id} is there`, 60_000, () => requestsOn(host) === total)
  }
  const isReady = (host: BooksHost) => markOf(host) !== '' && host.fleet.view().version >= west.fleet.view().version
  await until('they have read', 60_000, () => [east, west].every(isReady))
  await book('first', east, 1)
  const none = await lines()

  await change(schema22)
  for (const host of [east, west]) await until('it is known', 60_000, () => markOf(host) === '')
  await book('second', east, 2)
  await book('third', west, 3)
  const some = await lines()
  expect(some).not.toBe(none)

  await change(sums.sql)
  for (const host of [east, west]) await until('it is known', 60_000, () => markOf(host) !== '')
  await book('fourth', west, 4)
  expect(await lines()).toBe(some)
  // As a host of the older schema reports: to its like by changes, to the others by its number.
  await fleet.sql(`BEGIN; SELECT strongroom.begin_change(true); ${reportOf(['older'])}; COMMIT`)
  expect(await lines()).not.toBe(some)
  for (const host of [east, west]) await until('the older one', 60_000, () => keysOn(host).includes('older 1'))
  const [reported] = (await fleet.sql("SELECT reported FROM strongroom.usage_months WHERE key_prefix = 'older'")).split(
    '|',
  )
  expect(Number(reported)).toBeGreaterThan(0)
})

// Goal: a directory whose owner has taken the functions of control data from all roles serves as any other.
test.skipIf(missing)('no right to read control data', async () => {
  await using fleet = await openBooksFleet(server)
  await fleet.sql('REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC')
  const host = await readingHost(fleet)
  await fleet.sql(reportOf(['first']))
  await until('it is read', 60_000, () => keysOn(host).length === 1)
})

/** A copy of a directory with an organization, and its readings of sums through `connection`. */
async function openReader(connection: (postgres: Postgres) => Postgres = postgres => postgres) {
  const database = await newFleet(server)
  await asOwner(database, owner =>
    owner.transact(tx =>
      tx.query(
        `INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('${organizationId}', 'acme', 'active', 1)`,
      ),
    ),
  )
  const { directory } = openStore(':memory:')
  const adopt = () => {
    throw new Error('there are no instances here')
  }
  const replica = new Replica({ directory, hostId: 'b', adopt })
  const mark = new SumsMark(directory.db)
  const open = async () => {
    const direct = await connect(server, database)
    const postgres = connection(direct)
    if (replica.mark() === null) replica.begin(await fleetIdOf(postgres))
    const copy = new Copy({ directory, postgres, replica, clock: systemClock, log: silentLogger, onApplied: () => {} })
    const catchUp = () => copy.catchUp()
    const read = async () => {
      await catchUp()
      await readSums({ postgres, replica, hostId: 'b', mark, clock: systemClock, catchUp })
    }
    return { postgres, copy, read, [Symbol.asyncDispose]: () => direct.close() }
  }
  const keys = () => directory.db.all<{ key: string }>('SELECT key_prefix AS key FROM usage_months').map(row => row.key)
  return {
    open,
    mark,
    keys,
    report: (...names: readonly string[]) => asOwner(database, owner => owner.query(reportOf(names))),
    remove: (key: string) =>
      asOwner(database, owner =>
        owner.transact(tx => tx.query('DELETE FROM usage_months WHERE key_prefix = $1', [key])),
      ),
  }
}

// Goal: a sum whose transaction got a number that a reading had seen before a crash is read.
test.skipIf(missing)('numbers that a crash gives again', async () => {
  const { open, mark, keys } = await openReader()
  const burn = (postgres: Postgres, count: number, end: string) =>
    postgres.query(`DO $$ BEGIN FOR i IN 1..${count} LOOP PERFORM pg_current_xact_id(); ${end}; END LOOP; END $$`)
  {
    await using before = await open()
    await before.read()
    await burn(before.postgres, 300, 'ROLLBACK')
    await before.read()
    await server.stop('kill')
  }
  const seen = BigInt(mark.read()?.snapshot.split(':')[1] ?? 0)
  await server.start()
  await using after = await open()
  await after.postgres.query(reportOf(['crashed']))
  const [row] = await after.postgres.query<{ reported: string }>('SELECT reported::text AS reported FROM usage_months')
  expect(BigInt(row?.reported ?? 0)).toBeLessThan(seen)
  await burn(after.postgres, 600, 'COMMIT')
  await after.read()
  expect(keys()).toEqual(['crashed'])
})

// Goal: a sum that is reported while everything is copied, after the pages of its table, is read after the copy.
test.skipIf(missing)('a report during a copy of everything', async () => {
  let isReported = false
  const reader = await openReader(postgres => ({
    ...postgres,
    query: async (text, values, options) => {
      const rows = await postgres.query(text, values, options)
      if (!isReported && text.includes('to_jsonb(usage_months) AS row')) {
        isReported = true
        await reader.report('during')
      }
      return rows as never
    },
  }))
  await using host = await reader.open()
  await host.copy.catchUp()
  expect([isReported, reader.keys()]).toEqual([true, []])
  await host.read()
  expect(reader.keys()).toEqual(['during'])
})

// Goal: a sum that its host removes while another one reads it does not stay in the copy there.
test.skipIf(missing)('a removal during a reading', async () => {
  let isRead = false
  const reader = await openReader(postgres => ({
    ...postgres,
    query: async (text, values, options) => {
      const rows = await postgres.query(text, values, options)
      if (!isRead && JSON.stringify(rows).includes('removed')) {
        isRead = true
        await reader.remove('removed')
      }
      return rows as never
    },
  }))
  await using host = await reader.open()
  await host.read()
  await reader.report('removed', 'stays')
  await host.read()
  await host.read()
  expect([isRead, reader.keys()]).toEqual([true, ['stays']])
})
