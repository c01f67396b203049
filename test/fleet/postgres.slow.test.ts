// Transactions of the fleet's directory on a real PostgreSQL: numbers, failures, a server that ends, freezes, returns.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { connect, newFleet, targetOf } from '../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../scripts/rigs/postgres/proxy.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { POSTGRES_LIMITS } from '../../src/fleet/driver.ts'
import { commitUnknownMessage, directoryAwayMessage, sqlStateOf } from '../../src/fleet/failures.ts'
import { listenForChanges } from '../../src/fleet/listener.ts'
import type { Postgres } from '../../src/fleet/postgres.ts'
import type { Announcement } from '../../src/fleet/replica/announcement.codec.ts'
import { retryAfterOf } from '../../src/http/limited.ts'

/** Open sockets of this process whose other end has this port (proc(5), /proc/net/tcp). */
function socketsTo(port: number): number {
  const hex = port.toString(16).toUpperCase().padStart(4, '0')
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1)
  const inodes = rows.map(row => row.trim().split(/\s+/)).filter(([, , remote]) => remote?.endsWith(`:${hex}`))
  const open = new Set(readdirSync('/proc/self/fd').flatMap(fd => linkOf(`/proc/self/fd/${fd}`)))
  return inodes.filter(([, , , , , , , , , inode]) => open.has(`socket:[${inode}]`)).length
}

function linkOf(path: string): string[] {
  try {
    return [readlinkSync(path)]
  } catch {
    // Closed meanwhile, as the one of the directory itself.
    return []
  }
}

/** The log's lines of clients whom the server let in; empty without `log_connections`. */
const logins = (log: string) => log.split('\n').filter(line => line.includes('connection authorized'))

const through = (proxy: DatabaseProxy, url: string) => url.replace(/:\d+\//, `:${proxy.port}/`)

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('the directory', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const addHost = (name: string) =>
    `INSERT INTO hosts (id, name, database_role, joined_ms) VALUES (gen_random_uuid(), '${name}', 'r', 0)`

  // Goal: versions have no gaps and are in the order of commits, whatever fails in between; hosts copy by them.
  test('numbers transactions without gaps', async () => {
    const postgres = await connect(server, await newFleet(server))
    const write = (name: string) =>
      postgres.transact(async tx => {
        await tx.query(addHost(name))
        return tx.version
      })
    const versions = await Promise.all(Array.from({ length: 20 }, (_, at) => write(`h${at}`)))
    const failed = await failure(write('h3'))
    expect(sqlStateOf(failed)).toBe('23505')
    expect(await failure(postgres.transact(() => Promise.reject(new Error('of its own'))))).toEqual(
      new Error('of its own'),
    )
    versions.push(await write('last'))
    expect(versions.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 21 }, (_, at) => at + 1))
    const changes = await postgres.query<{ version: number; name: string }>(
      "SELECT version, row ->> 'name' AS name FROM changes WHERE table_name = 'hosts' ORDER BY version",
    )
    expect(changes.map(({ version }) => version)).toEqual(Array.from({ length: 21 }, (_, at) => at + 1))
    expect(changes.at(-1)).toEqual({ version: 21, name: 'last' })
    await postgres.close()
  })

  // Goal: what goes out with the commit is part of the transaction, whatever its texts hold; a statement that fails
  // there leaves nothing behind, the connection included.
  test('sends statements with the commit', async () => {
    const postgres = await connect(server, await newFleet(server))
    const add = 'INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ($1, $2, $2, 0)'
    const texts = ["'; DROP TABLE hosts; --", String.raw`\'); SELECT $1, '$2`, '$2 $1 \u{1f511}\n"']
    const versions = await Promise.all(
      texts.map((text, at) =>
        postgres.transact(
          async tx => {
            tx.atCommit({ text: add, values: [`h${at}`, text] })
            return [tx.version, tx.opened[0]?.text]
          },
          { opening: () => ({ text: 'SELECT $1 AS text', values: [text] }) },
        ),
      ),
    )
    expect(versions.map(([, text]) => text)).toEqual(texts)
    expect(versions.map(([version]) => Number(version)).sort()).toEqual([1, 2, 3])
    const names = await postgres.query<{ name: string }>('SELECT name FROM hosts ORDER BY id')
    expect(names.map(({ name }) => name)).toEqual(texts)
    for (let turn = 0; turn < 20; turn += 1) {
      const failed = postgres.transact(async tx => {
        tx.atCommit({ text: add, values: [`x${turn}`, `new ${turn}`] })
        tx.atCommit({ text: add, values: ['h0', 'the id is taken'] })
      })
      expect(sqlStateOf(await failure(failed))).toBe('23505')
    }
    await postgres.transact(async tx => tx.atCommit({ text: add, values: ['last', 'last'] }))
    const [after] = await postgres.query('SELECT count(*) AS hosts, max(version) AS version FROM hosts, fleet')
    expect(after).toEqual({ hosts: 4, version: 4 })
    await postgres.close()
  })

  // Goal: a change that hosts would never copy is impossible, by whatever program it is made.
  test('refuses a change without a version', async () => {
    const postgres = await connect(server, await newFleet(server))
    const refused = await failure(postgres.query(addHost('a')))
    expect(refused.message).toContain('only after SELECT strongroom.begin_change(true)')
    await postgres.transact(tx => tx.query(addHost('a')))
    // The version of one transaction must not serve the next one of the same connection.
    expect((await failure(postgres.transactPlain(tx => tx.query(addHost('b'))))).message).toContain('only after')
    await postgres.close()
  })

  // Goal: hosts copy whole rows, null for a deleted one, both keys of a changed key, nothing without a change.
  test('records what changed', async () => {
    const postgres = await connect(server, await newFleet(server))
    const [first, second] = ['00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002']
    await postgres.transact(tx =>
      tx.query("INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ($1, 'a', 'r', 5)", [first]),
    )
    await postgres.transact(tx => tx.query('UPDATE hosts SET joined_ms = 5'))
    await postgres.transact(tx => tx.query('UPDATE hosts SET id = $1, draining_ms = 7', [second]))
    await postgres.transact(tx => tx.query('DELETE FROM hosts'))
    const rows = await postgres.query('SELECT version, row_key, row FROM changes ORDER BY version, ordinal')
    const row = { id: first, name: 'a', database_role: 'r', joined_ms: 5, draining_ms: null }
    expect(rows).toEqual([
      { version: 1, row_key: { id: first }, row },
      { version: 3, row_key: { id: first }, row: null },
      { version: 3, row_key: { id: second }, row: { ...row, id: second, draining_ms: 7 } },
      { version: 4, row_key: { id: second }, row: null },
    ])
    await postgres.close()
  })

  // Goal: an application error that a statement's work hides does not pass for a commit.
  test('a transaction with a failed statement is no success', async () => {
    const postgres = await connect(server, await newFleet(server))
    const hidden = postgres.transact(async tx => {
      await tx.query(addHost('a'))
      await tx.query('SELECT 1 / 0').catch(() => {})
    })
    expect((await failure(hidden)).message).toContain('rolled back')
    expect(await postgres.query('SELECT name FROM hosts')).toEqual([])
    await postgres.close()
  })

  // Goal: two transactions that lock each other both succeed, the loser of the deadlock by running again.
  test('runs again what lost a deadlock', async () => {
    const postgres = await connect(server, await newFleet(server))
    await postgres.transactPlain(tx => tx.query('CREATE TABLE pairs AS SELECT generate_series(1, 2) AS id, 0 AS count'))
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const lock = (id: number, mine: PromiseWithResolvers<void>, theirs: PromiseWithResolvers<void>) =>
      postgres.transactPlain(async tx => {
        await tx.query('UPDATE pairs SET count = count + 1 WHERE id = $1', [id])
        mine.resolve()
        await theirs.promise
        await tx.query('UPDATE pairs SET count = count + 1 WHERE id = $1', [3 - id])
      })
    await Promise.all([lock(1, first, second), lock(2, second, first)])
    expect(await postgres.query('SELECT count FROM pairs')).toEqual([{ count: 2 }, { count: 2 }])
    await postgres.close()
  })

  // Goal: a commit whose answer is lost is looked up: the caller learns the truth, and nothing is done twice.
  test('finds out what became of a commit whose connection ended', async () => {
    await using proxy = await startProxy(server.port)
    const postgres = await connect(server, through(proxy, await newFleet(server)))
    proxy.set('after-commit')
    expect(await postgres.transact(tx => tx.query(addHost('kept')).then(() => tx.version))).toBe(1)
    proxy.set('before-commit')
    const lost = await failure(postgres.transact(tx => tx.query(addHost('lost'))))
    expect(lost).toMatchObject({ code: 'fleet.unavailable', message: directoryAwayMessage })
    expect(await postgres.query('SELECT name FROM hosts')).toEqual([{ name: 'kept' }])
    await postgres.close()
  })

  // Goal: the listener hears every version soon, also after its connection was ended, and stops when it should.
  test('listens, and listens again', async () => {
    const url = await newFleet(server)
    const postgres = await connect(server, url)
    const heard: (number | null)[] = []
    const stop = new AbortController()
    const onChange = (announcement: Announcement | null) => heard.push(announcement?.version ?? null)
    const deps = { target: targetOf(server, url), clock: systemClock, log: silentLogger, onChange, signal: stop.signal }
    const listening = listenForChanges(deps)
    await until('it listens', 60_000, () => heard.includes(null))
    await postgres.transact(tx => tx.query(addHost('a')))
    await postgres.transact(tx => tx.query(addHost('quiet')), { isQuiet: true })
    await until('it heard the first', 60_000, () => heard.includes(1))
    await server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    await until('it listens again', 60_000, () => heard.filter(version => version === null).length === 2)
    await postgres.transact(tx => tx.query(addHost('b')))
    await until('it heard the third', 60_000, () => heard.includes(3))
    expect(heard).toEqual([null, 1, null, 3])
    stop.abort()
    await listening
    await postgres.close()
  })
})

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'a database that is away',
  () => {
    const limits = { connectMs: 500, statementMs: 300, lockMs: 200, transactionMs: 1_000 }

    /** These bounds are short, and a machine under load is slow: the server is back, so one of the next requests is. */
    const serves = (postgres: Postgres) =>
      until('it serves again', 60_000, () =>
        postgres.query('SELECT 1').then(
          () => true,
          () => false,
        ),
      )

    // Goal: whatever happens to the server, a request gets 503 with Retry-After in bounded time, the process lives, and
    // is served again after the server's return.
    test('answers 503 while it is killed, frozen or closed, and serves afterwards', async () => {
      await using server = await startPostgres()
      const postgres = await connect(server, await newFleet(server), limits)
      const ask = () => postgres.query('SELECT 1 AS one')
      const expectAway = async (what: string) => {
        for (const attempt of [ask, ask, () => postgres.transact(tx => tx.query('SELECT 1'))]) {
          const fault = await failure(attempt())
          expect(`${what}: ${fault.code}`).toBe(`${what}: fleet.unavailable`)
          expect(retryAfterOf(fault)).toBe(2)
        }
        expect(postgres.view()).toMatchObject({ isReachable: false })
      }
      await serves(postgres)
      await server.stop('kill')
      await expectAway('killed')
      await server.start()
      await serves(postgres)
      expect(postgres.view()).toMatchObject({ isReachable: true, problem: null })
      server.freeze()
      await expectAway('frozen')
      server.thaw()
      await serves(postgres)
      await server.stop('fast')
      await expectAway('stopped')
      await server.start()
      await serves(postgres)
      await postgres.close()
    })

    // Goal: a transaction in the middle of which the server goes is not half done; its caller waits for a bounded time.
    test('ends a transaction that it was in', async () => {
      await using server = await startPostgres()
      const postgres = await connect(server, await newFleet(server), {
        connectMs: 2_500,
        statementMs: 3_500,
        lockMs: 3_400,
        transactionMs: 7_000,
      })
      const name = (name: string) =>
        `INSERT INTO hosts (id, name, database_role, joined_ms) VALUES (gen_random_uuid(), '${name}', 'r', 0)
           ON CONFLICT DO NOTHING`
      const killed = postgres.transact(async tx => {
        await tx.query(name('killed'))
        await server.stop('kill')
      })
      expect((await failure(killed)).code).toBe('fleet.unavailable')
      await server.start()
      await serves(postgres)
      const frozen = postgres.transact(async tx => {
        await tx.query(name('frozen'))
        server.freeze()
      })
      expect(await failure(frozen)).toMatchObject({ code: 'fleet.unavailable', message: commitUnknownMessage })
      server.thaw()
      await serves(postgres)
      // A work that waits for something else ends with its transaction: it holds the counter that all others need.
      const never = postgres.transact(() => new Promise<never>(() => {}))
      expect((await failure(never)).code).toBe('fleet.unavailable')
      await serves(postgres)
      // The server may take a moment to notice that the other one is gone.
      await until('another is done', 60_000, () =>
        postgres
          .transact(tx => tx.query(name('kept')))
          .then(
            () => true,
            () => false,
          ),
      )
      const names = (await postgres.query<{ name: string }>('SELECT name FROM hosts')).map(({ name }) => name)
      expect(names).toContain('kept')
      expect(names).not.toContain('killed')
      await postgres.close()
    })

    // Goal: a server that does not even answer the end of a connection keeps no socket of this process.
    test('gives up connections to a frozen server', async () => {
      await using server = await startPostgres()
      const postgres = await connect(server, await newFleet(server), limits)
      await serves(postgres)
      // Connections of attempts that came too late are on their way out.
      await until('one is open', 60_000, () => socketsTo(server.port) === 1)
      const idle = postgres.transact(async () => {
        server.freeze()
        expect(socketsTo(server.port)).toBe(1)
        await new Promise<never>(() => {})
      })
      expect((await failure(idle)).code).toBe('fleet.unavailable')
      await until('its socket is closed', 60_000, () => socketsTo(server.port) === 0)
      await postgres.close()
    })

    // Goal: a path that drops packets in silence costs each request a bounded time, and no connection is left open.
    test('answers 503 behind a black hole', async () => {
      await using server = await startPostgres()
      await using proxy = await startProxy(server.port)
      const postgres = await connect(server, through(proxy, await newFleet(server)), limits)
      await serves(postgres)
      proxy.set('hole')
      const asked = Array.from({ length: 12 }, () => failure(postgres.query('SELECT 1')))
      for (const fault of await Promise.all(asked)) expect(fault.code).toBe('fleet.unavailable')
      await until('no connection is open', 60_000, () => proxy.openCount() === 0)
      proxy.set('open')
      await serves(postgres)
      await postgres.close()
    })

    // Goal: with a synchronous standby nothing that was acknowledged is lost with the server, and while the standby is
    // away no change is acknowledged that the standby lacks.
    test('keeps what it acknowledged across the loss of the server', async () => {
      await using primary = await startPostgres()
      const url = await newFleet(primary)
      const database = new URL(url).pathname.slice(1)
      await using standby = await primary.standby()
      await standby.start()
      await primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
      await primary.run('SELECT pg_reload_conf()')
      const states = 'SELECT count(*) FROM pg_stat_replication WHERE sync_state = $$sync$$'
      await until('the standby is synchronous', 60_000, async () => (await primary.run(states)).trim() === '1')
      const postgres = await connect(primary, url, POSTGRES_LIMITS)
      const write = (name: string) =>
        postgres.transact(tx =>
          tx.query('INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ($1, $1, $1, 0)', [name]),
        )
      for (let at = 0; at < 20; at += 1) await write(`acknowledged-${String(at).padStart(2, '0')}`)
      await standby.stop('kill')
      expect(await failure(write('unknown'))).toMatchObject({
        code: 'fleet.unavailable',
        message: commitUnknownMessage,
      })
      await primary.stop('kill')
      await standby.start()
      await standby.promote()
      const after = await connect(standby, standby.url({ database }))
      const names = (await after.query<{ name: string }>('SELECT name FROM hosts ORDER BY name')).map(
        ({ name }) => name,
      )
      expect(names).toEqual(Array.from({ length: 20 }, (_, at) => `acknowledged-${String(at).padStart(2, '0')}`))
      expect(await after.transact(async tx => tx.version)).toBe(21)
      await postgres.close()
      await after.close()
    })

    // Goal: requests that come while all connections are in use wait for a bounded time and in a bounded number.
    test('bounds those that wait', async () => {
      await using server = await startPostgres()
      const url = await newFleet(server)
      const postgres = await connect(server, url, {
        connectMs: 20_000,
        statementMs: 10_000,
        connectionCountMax: 2,
        waitingCountMax: 3,
      })
      const slow = () => postgres.query('SELECT pg_sleep(0.2)')
      const all = await Promise.allSettled(Array.from({ length: 8 }, slow))
      expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(5)
      await postgres.close()
    })

    // Goal: only the pinned authority may speak for the database, and nothing goes out before that is known.
    test('takes no server of another authority', async () => {
      await using server = await startPostgres({ isTls: true, settings: { log_connections: 'on' } })
      await using other = await startPostgres({ isTls: true })
      const postgres = await connect(server, await newFleet(server))
      expect(await postgres.query('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()')).toEqual([{ ssl: true }])
      await postgres.close()
      const before = logins(server.log())
      expect(before).not.toEqual([])
      const wrong = await connect({ ...server, caPem: other.caPem }, server.url(), limits)
      expect((await failure(wrong.query('SELECT 1'))).code).toBe('fleet.unavailable')
      await wrong.close()
      await until('the server has seen the refusal', 60_000, () => server.log().includes('could not accept SSL'))
      expect(logins(server.log())).toEqual(before)
    })
  },
)
