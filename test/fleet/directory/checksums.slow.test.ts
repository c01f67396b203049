// Goal: a copy that differs from the directory is found within the hour, whatever differs, and copied again; one that
// does not differ is never said to. Real PostgreSQL and HTTP; VMs are files.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { asOwner, connect } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger, silentLogger } from '../../../src/base/log.ts'
import { type ChecksumDeps, Checksums } from '../../../src/fleet/directory/checksums.ts'
import { Copy } from '../../../src/fleet/directory/copy.ts'
import { checkTask } from '../../../src/fleet/directory/directory.ts'
import { fleetIdOf } from '../../../src/fleet/directory/feed.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { Replica } from '../../../src/fleet/replica/replica.ts'
import { REPLICA_TABLES } from '../../../src/fleet/replica/tables.ts'
import { openStore } from '../../../src/store/db.ts'
import { filledFleet } from '../../rigs/fleet/filled-fleet.ts'
import { type Fleet, type Host, openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

const differing = ({ inside }: Host) =>
  new Checksums(inside.store.directory.db).differing({
    postgres: inside.postgres,
    clock: systemClock,
    log: silentLogger,
    catchUp: async () => void (await inside.store.directory.read(null, () => {})),
    signal: new AbortController().signal,
  })

/** Changes the copy alone, as nothing should. */
function corrupt({ inside }: Host, ...statements: readonly string[]): void {
  inside.store.directory.transact(tx => {
    for (const statement of [
      'UPDATE replica SET is_applying = 1',
      ...statements,
      'UPDATE replica SET is_applying = 0',
    ]) {
      tx.run(statement)
    }
  })
}

/** A copy of a directory with a row in each table, whose clock moves when the test says so. */
async function openCopy() {
  const undo = new AsyncDisposableStack()
  const database = await filledFleet(server)
  // Values of lengths that a host's own tables require.
  const change = (...statements: readonly string[]) =>
    asOwner(database, owner =>
      owner.transact(async tx => {
        for (const statement of statements) await tx.query(statement)
      }),
    )
  await change(
    "UPDATE instance_attestations SET nonce = repeat('n', 43)",
    "UPDATE builds SET nonce = rpad(nonce, 64, 'x')",
  )
  const postgres = await connect(server, database)
  undo.defer(() => postgres.close())
  const { directory } = openStore(':memory:')
  const lines: string[] = []
  const replica = new Replica({ directory, hostId: 'b', adopt: () => ({ vmId: 'vm' }), mayAdopt: () => false })
  replica.begin(await fleetIdOf(postgres))
  let monotonicMs = 0
  const clock = { ...systemClock, monotonicMs: () => monotonicMs }
  const log = createLogger({ level: 'info', sink: line => lines.push(line), nowMs: clock.nowMs })
  const copy = new Copy({ directory, postgres, replica, clock, log, onApplied: () => {} })
  await copy.catchUp()
  const { signal } = new AbortController()
  // A host of its own would report these first.
  const clear = () => ['outbox', 'outbox_held'].forEach(table => void directory.db.run(`DELETE FROM ${table}`))
  clear()
  const catchUp = () => copy.catchUp()
  const deps = { postgres, clock: systemClock, log, catchUp, signal }
  return {
    copy,
    db: directory.db,
    change,
    postgres,
    replica,
    check: async () => {
      clear()
      await copy.check(signal)
      clear()
    },
    differing: (other: Partial<ChecksumDeps> = {}) => new Checksums(directory.db).differing({ ...deps, ...other }),
    lines,
    corrupt: (statement: string) =>
      directory.transact(tx => {
        tx.run('UPDATE replica SET is_applying = 1')
        tx.run(statement)
        tx.run('UPDATE replica SET is_applying = 0')
      }),
    copies: () => lines.filter(line => line.includes('the whole directory is copied')).length,
    pass: (ms: number) => {
      monotonicMs += ms
    },
    [Symbol.asyncDispose]: () => undo.disposeAsync(),
  }
}

const addOrganizations = (fleet: Fleet, count: number) =>
  fleet.sql(`BEGIN; SELECT strongroom.begin_change(true);
    INSERT INTO strongroom.organizations (id, slug, status, created_at_ms)
      SELECT 'many-' || n, 'grün-' || n, 'active', n FROM generate_series(1, ${count}) AS n; COMMIT`)

// Goal: nothing differs on any host, with rows of several pages, while hosts work and after it.
test.skipIf(missing)('copies that are right', async () => {
  await using fleet = await openFleet(server)
  const hosts = [await fleet.host('one', { isAttested: true }), await fleet.host('two', { isAttested: true })]
  await addOrganizations(fleet, 2_500)
  const [first, second] = hosts as [Host, Host]
  const names = await Promise.all(
    Array.from({ length: 12 }, async (_, n) => (await (n % 2 ? first : second).created()).name),
  )
  for (const host of hosts) expect(await differing(host)).toEqual([])
  for (const name of names) await until('ready', 60_000, async () => (await first.shown(name)).status === 'ready')
  for (const name of names.slice(6)) await second.send('DELETE', `/v1/instances/${name}`)
  for (const host of hosts) expect(await differing(host)).toEqual([])
  for (const name of names.slice(6)) {
    await until('ended', 60_000, async () => (await second.shown(name)).status === 'terminated')
  }
  for (const host of hosts) expect(await differing(host)).toEqual([])
})

// Goal: each kind of difference is found, in any page.
test.skipIf(missing)('copies that are wrong', async () => {
  await using fleet = await openFleet(server)
  const host = await fleet.host('one')
  await addOrganizations(fleet, 2_500)
  const { name } = await host.created()
  await until('ready', 60_000, async () => (await host.shown(name)).status === 'ready')
  expect(await differing(host)).toEqual([])
  for (const [statement, back, table] of [
    [
      "UPDATE organizations SET quotas = '1' WHERE id = 'many-2499'",
      'UPDATE organizations SET quotas = NULL',
      'organizations',
    ],
    [
      "UPDATE organizations SET slug = 'gruen-7' WHERE id = 'many-7'",
      "UPDATE organizations SET slug = 'grün-7' WHERE id = 'many-7'",
      'organizations',
    ],
    [
      "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('zz', 'zz', 'active', 0)",
      "DELETE FROM organizations WHERE id = 'zz'",
      'organizations',
    ],
    ['UPDATE keys SET secret_sha256 = zeroblob(32)', null, 'keys'],
    ["DELETE FROM instance_changes WHERE status = 'ready'", null, 'instance_changes'],
  ] as const) {
    corrupt(host, statement)
    expect([statement, await differing(host)]).toEqual([statement, expect.arrayContaining([table])])
    if (back !== null) {
      corrupt(host, back)
      expect(await differing(host)).toEqual([])
    }
  }
})

// Goal: a host finds it by itself, says so, and copies the directory, once.
test.skipIf(missing)('a wrong copy is mended', async () => {
  await using fleet = await openFleet(server)
  const lines: string[] = []
  await fleet.host('other')
  const host = await fleet.host('wrong', { checkEveryMs: 300, log: line => lines.push(line) })
  const { contradiction } = host.inside.fleet
  await host.created()
  await Bun.sleep(1_000)
  expect(contradiction()).toBeNull()
  corrupt(host, "UPDATE organizations SET status = 'suspended'")
  await until('it says so', 60_000, () => contradiction() !== null)
  expect(contradiction()?.problem).toContain('organizations')
  const { db } = host.inside.store.directory
  await until(
    'it is right',
    60_000,
    () => db.all("SELECT 1 FROM organizations WHERE status = 'suspended'").length === 0,
  )
  expect(await differing(host)).toEqual([])
  // Sums are not compared, but read again.
  await fleet.sql(`INSERT INTO strongroom.usage_months
    SELECT id, '2026-11', 'k', 'elsewhere', 1, 1, 1, 1 FROM strongroom.organizations LIMIT 1`)
  const sums = () => db.all("SELECT 1 FROM usage_months WHERE host_id = 'elsewhere'").length
  await until('the sum', 60_000, () => sums() === 1)
  corrupt(host, 'DELETE FROM usage_months')
  await until('the sum again', 60_000, () => sums() === 1)
  const copies = () => lines.filter(line => line.includes('the whole directory is copied')).length
  const before = copies()
  corrupt(host, "UPDATE organizations SET status = 'suspended'")
  const found = () => lines.filter(line => line.includes('the copy of the directory differs from it')).length
  await until('it finds it again', 60_000, () => found() > 2)
  expect(copies()).toBe(before)
})

// Goal: a copy that is wrong again within a day waits for that day to end, says so, and is mended then.
test.skipIf(missing)('a second wrong copy', async () => {
  await using fleet = await openCopy()
  const { copy, corrupt, differing, check, copies, pass } = fleet
  expect([await differing(), copies()]).toEqual([[], 1])
  corrupt('UPDATE keys SET revoked_at_ms = 7')
  await check()
  expect([await differing(), copies(), copy.contradiction()?.isCopied]).toEqual([[], 2, true])
  pass(20 * 3_600_000)
  corrupt('UPDATE keys SET revoked_at_ms = 7')
  for (let hour = 0; hour < 4; hour += 1) {
    await check()
    pass(3_600_000)
  }
  expect([await differing(), copies(), copy.contradiction()?.isCopied]).toEqual([['keys'], 2, false])
  pass(1)
  await check()
  expect([await differing(), copies(), copy.contradiction()?.isCopied]).toEqual([[], 3, true])
  pass(24 * 3_600_000 + 1)
  expect(copy.contradiction()).toBeNull()
})

// Goal: a comparison that fails keeps what it had found; a table that cannot be compared is said to be left out.
test.skipIf(missing)('a comparison that is not whole', async () => {
  await using fleet = await openCopy()
  const { postgres, db, differing, corrupt, lines } = fleet
  const failing: Pick<Postgres, 'query'> = {
    query: async (text, values) => {
      if (text.includes('instance_changes')) throw new Error('the way is cut')
      return await postgres.query(text, values)
    },
  }
  await expect(differing({ postgres: failing })).rejects.toThrow('the way is cut')
  corrupt('UPDATE keys SET revoked_at_ms = 7')
  expect(await differing({ postgres: failing })).toEqual(['keys'])
  // Something is to be reported all the time.
  db.run("INSERT INTO outbox (table_name, row_key) VALUES ('keys', '{}')")
  expect(await differing({ clock: { sleep: async () => {} } })).toEqual([])
  const left = lines.filter(line => line.includes('at each attempt'))
  expect(left).toHaveLength(REPLICA_TABLES.filter(({ isSum }) => isSum !== true).length)
  expect(left[0]).toContain('organizations')
})

// Goal: a comparison that fails is repeated within a minute, one that succeeds after the interval.
test('when the next comparison is', async () => {
  const clock = createManualClock()
  let failure: Error | null = new Error('the way is cut')
  const check = async () => {
    if (failure !== null) throw failure
  }
  const { signal } = new AbortController()
  const deps = { copy: { check }, sums: { readAll: async () => {} }, mayRead: () => true, signal }
  const { work } = checkTask({ hostId: 'b', clock }, deps)
  const next = async () => {
    const worked = work().catch(() => {})
    const [waitMs = 0] = clock.pending()
    clock.advance(waitMs)
    await worked
    return waitMs
  }
  expect(await next()).toBeLessThan(3_600_000)
  expect(await next()).toBe(60_000)
  failure = null
  expect(await next()).toBe(60_000)
  expect(await next()).toBe(3_600_000)
})

// Goal: a number that no copy can hold exactly is no difference, and hides none in its row.
test.skipIf(missing)('numbers that are not exact here', async () => {
  await using fleet = await openCopy()
  const { copy, change, differing, corrupt } = fleet
  for (const value of ['9007199254740993', '-9007199254740993', '9007199254740991', '0']) {
    await change(`UPDATE instances SET egress_block_applied_at_ms = ${value} WHERE host_id = 'a'`)
    await copy.catchUp()
    expect([value, await differing()]).toEqual([value, []])
  }
  corrupt("UPDATE instances SET egress_block_applied_at_ms = 1 WHERE host_id = 'a'")
  expect(await differing()).toEqual(['instances'])
})

// Goal: rows that may be large are compared a few at a time, all of them.
test.skipIf(missing)('rows that may be large', async () => {
  await using fleet = await openCopy()
  const { copy, change, differing, corrupt, postgres } = fleet
  await change(`INSERT INTO builds
      (id, host_id, organization_id, state, nonce, source_kind, reproduce, network, disk_bytes, created_at_ms)
    SELECT 'many-' || n, 'a', 'o', 'ok', lpad(n::text, 64, 'x'), 'archive', 0, 'unused', 0, 5
    FROM generate_series(1, 250) AS n`)
  await copy.catchUp()
  const counts: number[] = []
  const counting: Pick<Postgres, 'query'> = {
    query: async (text, values) => {
      if (text.includes('JOIN builds')) counts.push(JSON.parse(String(values?.[0])).length)
      return await postgres.query(text, values)
    },
  }
  expect(await differing({ postgres: counting })).toEqual([])
  expect(Math.max(...counts)).toBe(100)
  corrupt("UPDATE builds SET toolchain = 'other' WHERE id = 'many-99'")
  expect(await differing()).toEqual(['builds'])
})
