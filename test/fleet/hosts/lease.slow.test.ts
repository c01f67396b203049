// Leases of a fleet's hosts on a real PostgreSQL: who has one, who is silent, and what an outage or a failover does.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { addHosts, addInstances, hostId, leaseOf, statuses } from '../../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { endBuildsOf, giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import {
  forgetHost,
  hostNamed,
  joinHost,
  listHosts,
  removeHost,
  setDraining,
} from '../../../src/fleet/hosts/hosts.query.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { grantHost } from '../../../src/fleet/rights.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

/**
 * Lets time go by for the clock of silence: as if renewals of another host had been taken for so long. It stands still
 * but for this until the next renewal, however long the machine takes.
 */
const serve = (postgres: Postgres, ms: number) =>
  postgres.query("UPDATE clock SET served_ms = served_ms + $1, renewed_at = clock_timestamp() + interval '1 day'", [ms])

/** Puts the last renewal of anybody back, as an outage of the database or of all hosts does. */
const away = (postgres: Postgres, seconds: number) =>
  postgres.query('UPDATE clock SET renewed_at = renewed_at - make_interval(secs => $1)', [seconds])

const limits = { connectMs: 1_000, statementMs: 1_000 }

describe.skipIf(missing)('leases', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const withLease = async (postgres: Postgres) =>
    (await listHosts(postgres)).filter(({ hasLease }) => hasLease).map(({ name }) => name)

  // Goal: a host is seen as dead 6 s after its last renewal, by everybody, and takes its lease back when it returns.
  test('a host has its lease for six seconds', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b', 'never')
    const [a, b] = [leaseOf(postgres, 'a'), leaseOf(postgres, 'b')]
    expect(a.view()).toEqual({
      hasLease: false,
      isDraining: false,
      epoch: null,
      problem: 'no renewal has succeeded yet',
    })
    await a.renew()
    await serve(postgres, 0)
    expect(a.view()).toEqual({ hasLease: true, isDraining: false, epoch: 1, problem: null })
    await b.renew()
    await serve(postgres, 0)
    expect(await withLease(postgres)).toEqual(['a', 'b'])
    await serve(postgres, 5_999)
    await b.renew()
    await serve(postgres, 0)
    expect(await withLease(postgres)).toEqual(['a', 'b'])
    await serve(postgres, 1)
    expect(await withLease(postgres)).toEqual(['b'])
    await a.renew()
    expect(await withLease(postgres)).toEqual(['a', 'b'])
    expect(await hostNamed(postgres, 'never')).toMatchObject({ hasLease: false, silentMs: null, places: 0 })
    await postgres.close()
  })

  // Goal: a copy of a host that starts beside it gets no lease, and both addresses are named; the host keeps its own,
  // and the copy gets none at the host's next pause. A process that can only run after the former one gets it at once.
  test('one process has the lease of a host', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a')
    const [first, copy] = [leaseOf(postgres, 'a', { process: 'p1' }), leaseOf(postgres, 'a', { process: 'p2' })]
    await first.renew()
    await serve(postgres, 0)
    await postgres.query("UPDATE leases SET process_address = '192.0.2.7'")
    await copy.renew()
    expect(copy.view()).toMatchObject({
      hasLease: false,
      problem: expect.stringMatching(/signs in from 192\.0\.2\.7, this one from 127\.0\.0\.1\. Stop the copy/),
    })
    const restarted = leaseOf(postgres, 'a', { process: 'p1' })
    await restarted.renew()
    expect(restarted.view()).toMatchObject({ hasLease: true, problem: null })
    await copy.renew()
    expect(copy.view().problem).toContain('within ten seconds')
    await restarted.renew()
    await copy.renew()
    expect(copy.view().problem).toContain('does not try again')
    await serve(postgres, 60_000)
    await copy.renew()
    expect(copy.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('does not try again') })
    await restarted.renew()
    expect(restarted.view()).toMatchObject({ hasLease: true, problem: null })
    await postgres.close()
  })

  // Goal: a process that took the lease when its holder was silent keeps it, when the former holder returns.
  test('a host that was silent returns after its copy', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a')
    const [frozen, next] = [leaseOf(postgres, 'a', { process: 'p1' }), leaseOf(postgres, 'a', { process: 'p2' })]
    await frozen.renew()
    await serve(postgres, 6_000)
    await next.renew()
    expect(next.view()).toMatchObject({ hasLease: true, problem: null })
    await frozen.renew()
    expect(frozen.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('another process') })
    await postgres.close()
  })

  // Goal: after a kill of a fleet's only host, or of all hosts at once, the next process gets the lease by itself.
  test('a killed host returns though nobody else renews', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a')
    const [killed, next] = [leaseOf(postgres, 'a', { process: 'p1' }), leaseOf(postgres, 'a', { process: 'p2' })]
    await killed.renew()
    const beganMs = performance.now()
    await next.renew()
    expect(next.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('another process') })
    await until('the lease of the killed process has run out', 30_000, async () => {
      await next.renew()
      return next.view().hasLease
    })
    expect(performance.now() - beganMs).toBeGreaterThan(5_500)
    await killed.renew()
    expect(killed.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('another process') })
    await postgres.close()
  }, 60_000)

  // Goal: a failover, which voids every lease, gives a copy no way in ahead of the process that had the lease.
  test('after a failover a copy comes second', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a')
    const memberships: boolean[] = []
    const first = leaseOf(postgres, 'a', { process: 'p1' })
    const copy = leaseOf(postgres, 'a', { process: 'p2', onMembership: is => memberships.push(is) })
    await first.renew()
    await postgres.query('UPDATE clock SET timeline = timeline + 1')
    await copy.renew()
    expect(copy.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('another process') })
    expect(memberships).toEqual([false])
    await first.renew()
    expect(first.view()).toMatchObject({ hasLease: true, epoch: 2, problem: null })
    await postgres.close()
  })

  // Goal: the host itself stops no later than the others expect it to, counted from before it asked.
  test('a host counts its own lease from before it asked', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a')
    let nowMs = 1_000
    const clock = { nowMs: () => 0, monotonicMs: () => nowMs, sleep: async () => {} }
    const slow: typeof postgres.query = async (text, values) => {
      const rows = await postgres.query(text, values)
      nowMs += 2_500
      return rows as never
    }
    const lease = leaseOf({ ...postgres, query: slow }, 'a', { clock })
    await lease.renew()
    nowMs = 1_000 + 5_999
    expect(lease.isHeld()).toBe(true)
    nowMs = 1_000 + 6_000
    expect(lease.isHeld()).toBe(false)
    await postgres.close()
  })

  // Goal: silence of more than the bound, while others are served, fails a dead host's instances, once, and no other's.
  test('a silent host is given up', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b', 'c')
    await addInstances(postgres, 'a', 'a1', 'a2')
    await addInstances(postgres, 'b', 'b1')
    const events: unknown[] = []
    const onEvent = (kind: string, detail: object) => events.push({ kind, ...detail })
    const [a, b, c] = ['a', 'b', 'c'].map(name => leaseOf(postgres, name, { onEvent })) as [never, never, never]
    const leases: ReturnType<typeof leaseOf>[] = [a, b, c]
    for (const lease of leases) {
      await lease.renew()
      await serve(postgres, 0)
    }
    for (let at = 0; at < 20; at += 1) {
      await serve(postgres, 2_950)
      await leases[1]?.renew()
      await serve(postgres, 0)
      await leases[2]?.renew()
    }
    expect(await statuses(postgres)).toEqual({ a1: 'ready', a2: 'ready', b1: 'ready' })
    await serve(postgres, 2_950)
    await Promise.all([leases[1]?.renew(), leases[2]?.renew()])
    await until('it is given up', 60_000, async () => (await statuses(postgres)).a1 === 'failed')
    expect(await statuses(postgres)).toEqual({ a1: 'failed', a2: 'failed', b1: 'ready' })
    await until('one of them says so', 60_000, () => events.length > 0)
    expect(events).toEqual([{ kind: 'fleet.gave-up', host: hostId('a'), instances: 2 }])
    // Their hours end with the host's last renewal, not with the end of its silence.
    const [ends] = await postgres.query<{ apart: number }>(
      `SELECT max(abs(c.at_ms - (extract(epoch FROM l.renewed_at) * 1000)::bigint)) AS apart
       FROM instance_changes c JOIN leases l ON l.host_id = $1`,
      [hostId('a')],
    )
    expect(ends).toEqual({ apart: 0 })
    expect(await hostNamed(postgres, 'a')).toMatchObject({ hasLease: false, lostAt: expect.any(Date) })
    // It comes back: it says what happened, and takes instances again.
    await leases[0]?.renew()
    expect(events.at(-1)).toEqual({ kind: 'fleet.lost' })
    expect(await hostNamed(postgres, 'a')).toMatchObject({ hasLease: true, lostAt: null })
    await leases[0]?.renew()
    expect(events).toHaveLength(2)
    await postgres.close()
  })

  // Goal: a host that comes back in the last moment is not given up, though another host has already seen its silence.
  test('a host that returns in time keeps its instances', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b')
    await addInstances(postgres, 'a', 'a1')
    const a = leaseOf(postgres, 'a')
    // Between the renewal that saw the silence and the transaction that gives up.
    const late: typeof postgres.transact = async (work, options) => {
      await a.renew()
      return await postgres.transact(work, options)
    }
    const told = Promise.withResolvers<void>()
    const transact: typeof late = (work, options) => late(work, options).finally(told.resolve)
    const b = leaseOf({ ...postgres, transact }, 'b')
    await a.renew()
    await b.renew()
    await serve(postgres, 61_000)
    await b.renew()
    await told.promise
    expect(await statuses(postgres)).toEqual({ a1: 'ready' })
    await postgres.close()
  })

  // Goal: an outage of any length fails nothing: only time in which the database took renewals counts.
  test('an outage of ten minutes counts as three seconds', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b')
    await addInstances(postgres, 'a', 'a1')
    const [a, b] = [leaseOf(postgres, 'a'), leaseOf(postgres, 'b')]
    await a.renew()
    await serve(postgres, 0)
    await b.renew()
    await away(postgres, 600)
    await b.renew()
    // The database's clock jumps back: no time goes by, and no lease lasts longer for it.
    await away(postgres, -3_600)
    expect((await hostNamed(postgres, 'a')).silentMs).toBe(3_000)
    expect(await withLease(postgres)).toEqual(['a', 'b'])
    await b.renew()
    await serve(postgres, 0)
    expect((await hostNamed(postgres, 'a')).silentMs).toBe(3_000)
    await serve(postgres, 3_100)
    expect(await withLease(postgres)).toEqual(['b'])
    expect(await statuses(postgres)).toEqual({ a1: 'ready' })
    await postgres.close()
  })

  // Goal: a host role can renew its own lease and change the directory, and nothing else of the fleet.
  test('a host has the least rights', async () => {
    const url = await newFleet(server)
    const owner = await connect(server, url)
    for (const role of ['host_a', 'host_b', 'stranger']) await server.run(`CREATE ROLE ${role} LOGIN`)
    for (const role of ['host_a', 'host_b']) await owner.transactPlain(tx => grantHost(tx, role))
    const as = (role: string) => connect(server, url.replace('owner@', `${role}@`))
    const [a, b, stranger] = [await as('host_a'), await as('host_b'), await as('stranger')]
    await owner.transact(async tx => {
      for (const name of ['a', 'b']) {
        await joinHost(tx, { id: hostId(name), name, role: `host_${name}`, nowMs: 0 })
      }
    })
    const lease = leaseOf(a, 'a')
    await lease.renew()
    expect(lease.view()).toMatchObject({ hasLease: true, problem: null })
    // Another host's lease.
    const stolen = leaseOf(b, 'a')
    await stolen.renew()
    expect(stolen.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('no member of the fleet') })
    await addInstances(a, 'a', 'a1')
    // By any host, and on record with its name.
    await a.transact(tx => setDraining(tx, 'b', 5))
    expect((await hostNamed(b, 'b')).drainingMs).toBe(5)
    for (const forbidden of [
      "UPDATE hosts SET database_role = 'host_b'",
      "INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ('x', 'x', 'host_a', 0)",
      'UPDATE leases SET served_ms = 0',
      'UPDATE clock SET served_ms = 0',
      'UPDATE fleet SET version = 0',
      'DELETE FROM changes',
      'DROP TABLE instances',
      'CREATE TABLE mine (id text)',
    ]) {
      expect(`${forbidden}: ${(await failure(b.transact(tx => tx.query(forbidden)))).message}`).toMatch(
        /permission denied|must be owner/,
      )
    }
    expect((await failure(b.query('SELECT tick(now())'))).message).toBe('permission denied for function tick')
    expect((await failure(stranger.transact(tx => tx.query('SELECT 1')))).message).toMatch(/not a member of its fleet/)
    expect((await failure(stranger.query('SELECT * FROM strongroom.organizations'))).message).toContain(
      'permission denied',
    )
    for (const postgres of [owner, a, b, stranger]) await postgres.close()
  })

  // Goal: no host goes while it has instances, one that is there is not forgotten, and one that is gone can be.
  test('drain, remove, forget', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b')
    await addInstances(postgres, 'a', 'a1')
    await addInstances(postgres, 'b', 'b1', 'b2')
    const lease = leaseOf(postgres, 'a')
    await lease.renew()
    const change = <T>(work: Parameters<typeof postgres.transact<T>>[0]) => postgres.transact(work)
    expect((await failure(change(tx => removeHost(tx, 'a', endBuildsOf)))).message).toContain('drain it first')
    await change(tx => setDraining(tx, 'a', 7))
    await change(tx => setDraining(tx, 'a', 9))
    expect((await hostNamed(postgres, 'a')).drainingMs).toBe(7)
    await lease.renew()
    expect(lease.view()).toMatchObject({ isDraining: true, hasLease: true })
    expect((await failure(change(tx => removeHost(tx, 'a', endBuildsOf)))).message).toContain('has 1 instances')
    expect((await failure(change(tx => forgetHost(tx, 'a', giveUpInstancesOf)))).message).toContain('renews its lease')
    await change(tx => tx.query("UPDATE instances SET status = 'terminated' WHERE name = 'a1'"))
    await change(tx => removeHost(tx, 'a', endBuildsOf))
    await lease.renew()
    expect(lease.view()).toMatchObject({ hasLease: false, problem: expect.stringContaining('no member') })
    await addInstances(postgres, 'b', 'b3', 'b4')
    await change(tx =>
      tx.query("UPDATE instances SET desired = 'absent', status = 'terminating' WHERE name IN ('b3', 'b4')"),
    )
    expect(await change(tx => forgetHost(tx, 'b', giveUpInstancesOf))).toBe(4)
    const all = { a1: 'terminated', b1: 'failed', b2: 'failed', b3: 'terminated', b4: 'terminated' }
    expect(await statuses(postgres)).toEqual(all)
    expect(await postgres.query('SELECT instance_id AS id, status, at_ms FROM instance_changes ORDER BY 1')).toEqual([
      { id: 'b1', status: 'failed', at_ms: 0 },
      { id: 'b2', status: 'failed', at_ms: 0 },
      { id: 'b3', status: 'terminated', at_ms: 0 },
      { id: 'b4', status: 'terminated', at_ms: 0 },
    ])
    const [failed] = await postgres.query("SELECT failure_code, failure_message FROM instances WHERE name = 'b1'")
    expect(failed).toEqual({ failure_code: 'host_lost', failure_message: 'The host of the virtual machine was lost.' })
    expect(await listHosts(postgres)).toEqual([])
    expect((await failure(change(tx => setDraining(tx, 'b', 1)))).code).toBe('not_found')
    await postgres.close()
  })

  // Goal: `changes` does not grow without bound, loses whole versions from the oldest on, and says how far.
  test('trims what is old', async () => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, 'a', 'b', 'c', 'd')
    const trim = async (count: number) => (await postgres.query('SELECT trim_changes(60, $1) AS count', [count]))[0]
    const left = async () =>
      (await postgres.query<{ version: number }>('SELECT version FROM changes ORDER BY 1')).map(row => row.version)
    expect(await trim(100)).toEqual({ count: 0 })
    await postgres.query("UPDATE changes SET at = at - interval '1 hour' WHERE version < 4")
    expect(await trim(2)).toEqual({ count: 2 })
    expect(await postgres.query('SELECT version FROM trimmed')).toEqual([{ version: 2 }])
    expect(await trim(100)).toEqual({ count: 1 })
    expect(await left()).toEqual([4])
    await postgres.close()
  })
})

describe.skipIf(missing)('leases and a server that fails', () => {
  // Goal: after a failover every lease is void until its host renews on the new server, silence starts anew, nothing
  // fails, and versions go on.
  test('a standby takes over', async () => {
    await using primary = await startPostgres()
    const url = await newFleet(primary)
    const before = await connect(primary, url)
    await addHosts(before, 'a', 'b')
    await addInstances(before, 'a', 'a1')
    await leaseOf(before, 'a').renew()
    await leaseOf(before, 'b').renew()
    // Nearly lost: the next seconds of silence would be the last.
    await serve(before, 59_000)
    await using standby = await primary.standby()
    await standby.start()
    await until(
      'the standby has all',
      60_000,
      async () =>
        (await standby.run('SELECT max(served_ms) FROM strongroom.clock', new URL(url).pathname.slice(1))).trim() >=
        '59000',
    )
    const after = await connect(standby, standby.url({ database: new URL(url).pathname.slice(1) }))
    // A standby takes no writes: away, as for a server that is not there.
    expect((await failure(after.transact(tx => tx.query('SELECT 1')))).code).toBe('fleet.unavailable')
    await primary.stop('kill')
    const [a, b] = [leaseOf(after, 'a'), leaseOf(after, 'b')]
    await b.renew()
    expect(b.isHeld()).toBe(false)
    await standby.promote()
    expect((await listHosts(after)).filter(({ hasLease }) => hasLease)).toEqual([])
    await b.renew()
    expect(b.view()).toMatchObject({ hasLease: true, epoch: 2 })
    expect(await hostNamed(after, 'a')).toMatchObject({ hasLease: false, silentMs: expect.any(Number) })
    // That is what counts of the time between two questions at most.
    expect((await hostNamed(after, 'a')).silentMs).toBeLessThanOrEqual(3_000)
    await serve(after, 50_000)
    await b.renew()
    await serve(after, 0)
    expect(await statuses(after)).toEqual({ a1: 'ready' })
    await a.renew()
    expect((await listHosts(after)).map(({ hasLease }) => hasLease)).toEqual([true, true])
    const [last] = await after.query<{ version: number }>('SELECT version FROM fleet')
    expect(await after.transact(async tx => tx.version)).toBe((last?.version ?? 0) + 1)
    await before.close()
    await after.close()
  })

  // Goal: while the database is killed or frozen hosts lose their lease by their own clock, and get it back with the
  // first renewal after its return.
  test('killed and frozen', async () => {
    await using server = await startPostgres()
    const url = await newFleet(server)
    const owner = await connect(server, url)
    await addHosts(owner, 'a')
    await owner.query('UPDATE clock SET lease_ms = 700')
    await owner.close()
    const postgres = await connect(server, url, limits)
    const stop = new AbortController()
    const lease = leaseOf(postgres, 'a', { renewEveryMs: 100 })
    const running = lease.run(stop.signal)
    const held = (is: boolean) => until(`held: ${is}`, 60_000, () => lease.isHeld() === is)
    await held(true)
    await server.stop('kill')
    await held(false)
    expect(lease.view().problem).not.toBeNull()
    await server.start()
    await held(true)
    server.freeze()
    await held(false)
    server.thaw()
    await held(true)
    expect(lease.view()).toMatchObject({ problem: null, epoch: 1 })
    stop.abort()
    await running
    await postgres.close()
  })
})
