// Goal: no host can have another one given up that renews its lease, or stop its changes, by what it holds.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { admitHost, asOwner, connect, newFleet, patientLimits } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasFakeTime, PostgresPair } from '../../../scripts/rigs/postgres/pair.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('a held clock', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  }, 120_000)
  afterAll(() => server[Symbol.asyncDispose]())

  // Goal: a host that renews is not given up, although another one holds on to all that a renewal writes: its own
  // row, and the clock of silence. Within its open transaction the clock goes on for that host alone.
  test('a host that renews has its lease beside one that holds the clock', async () => {
    const fleet = await newFleet(server)
    const names = ['a', 'b']
    const urls = await Promise.all(names.map(id => admitHost(fleet, { id, name: id })))
    const [a, evil] = await Promise.all(urls.map(url => connect(server, url, { ...patientLimits, lockMs: 1_000 })))
    if (a === undefined || evil === undefined) throw new Error('two hosts')
    const renewA = "SELECT renew_lease('a', 0, 'tcg', 5, '{}')"
    const renewB = "SELECT renew_lease('b', 0, 'tcg', 5, '{}')"
    await a.query(renewA)
    // A step of the clock is so short that five seconds of the test are many of them.
    await asOwner(fleet, owner => owner.query('UPDATE clock SET step_ms_max = 1000, lost_ms_min = 3000'))
    const silences: number[] = []
    await evil.transactPlain(async tx => {
      const untilMs = performance.now() + 5_000
      while (performance.now() < untilMs) {
        await tx.query(renewB)
        await a.query(renewA)
        const [seen] = await tx.query<{ ms: number }>("SELECT silent_ms AS ms FROM host_states WHERE id = 'a'")
        silences.push(seen?.ms ?? -1)
        expect(await tx.query("SELECT mark_lost('a', 0) AS is")).toEqual([{ is: false }])
        await Bun.sleep(100)
      }
      await tx.query(renewB)
    })
    expect(silences.length).toBeGreaterThan(2)
    // The clock itself went on for as long as the other one held it.
    const [clock] = await a.query<{ ms: number }>('SELECT served_ms AS ms FROM clock')
    expect(clock?.ms).toBeGreaterThan(3_000)
    expect(await a.query("SELECT has_lease AS is, lost_at AS lost FROM host_states WHERE id = 'a'")).toEqual([
      { is: true, lost: null },
    ])
    await a.close()
    await evil.close()
  }, 120_000)

  // Goal: however short the silence that a host gives another one, that one's own setting holds.
  test('a host is given up no sooner than it says itself', async () => {
    const fleet = await newFleet(server)
    const a = await connect(server, await admitHost(fleet, { id: 'a', name: 'a' }))
    const evil = await connect(server, await admitHost(fleet, { id: 'b', name: 'b' }))
    await a.query("SELECT renew_lease('a', 60000, 'tcg', 5, '{}')")
    const serve = (ms: number) =>
      asOwner(fleet, owner =>
        owner.query("UPDATE clock SET served_ms = served_ms + $1, renewed_at = clock_timestamp() + interval '1 day'", [
          ms,
        ]),
      )
    const renewed = "SELECT silent FROM renew_lease('b', 0, 'tcg', 5, '{}')"
    await serve(50_000)
    expect(await evil.query(renewed)).toEqual([{ silent: [] }])
    expect(await evil.query("SELECT mark_lost('a', 0) AS is")).toEqual([{ is: false }])
    await serve(12_000)
    expect(await evil.query(renewed)).toEqual([{ silent: ['a'] }])
    expect(await evil.query("SELECT mark_lost('a', 0) AS is")).toEqual([{ is: true }])
    await a.close()
    await evil.close()
  })

  // Goal: a host that holds the directory's counter, with timeouts of its own choice, stops the others' changes for ten
  // seconds, not longer, and that is on record. A younger change is not ended.
  test('a host that holds the counter loses its connection', async () => {
    const fleet = await newFleet(server)
    const urls = await Promise.all(['a', 'b'].map(id => admitHost(fleet, { id, name: id })))
    const [a, evil] = await Promise.all(urls.map(url => connect(server, url, { ...patientLimits, lockMs: 1_000 })))
    if (a === undefined || evil === undefined) throw new Error('two hosts')
    const held = Promise.withResolvers<number>()
    const holding = failure(
      evil.transact(async tx => {
        await tx.query('SET LOCAL statement_timeout = 0')
        held.resolve(performance.now())
        await tx.query('SELECT pg_sleep(50)')
      }),
    )
    const beganMs = await held.promise
    const change = () => a.transact(tx => tx.query("SELECT set_draining('a', 5)"))
    let refusals = 0
    while (performance.now() - beganMs < 30_000) {
      const done = await change().then(
        () => true,
        () => false,
      )
      if (done) break
      refusals += 1
    }
    const tookMs = performance.now() - beganMs
    expect(refusals).toBeGreaterThan(2)
    expect(tookMs).toBeGreaterThan(9_500)
    expect(tookMs).toBeLessThan(30_000)
    expect((await holding).message).toContain('directory of this fleet')
    const ended = await a.query("SELECT host_name, subject FROM host_actions WHERE action = 'change.ended'")
    expect(ended).toEqual([{ host_name: 'a', subject: 'b' }])
    await a.close()
    await evil.close()
  }, 120_000)

  // Goal: a commit that waits for a synchronous standby is no change that is stuck: ending it would show the change
  // before the standby has it.
  test('a commit that waits for the standby is not ended', async () => {
    const fleet = await newFleet(server)
    const urls = await Promise.all(['a', 'b'].map(id => admitHost(fleet, { id, name: id })))
    const [a, b] = await Promise.all(urls.map(url => connect(server, url)))
    if (a === undefined || b === undefined) throw new Error('two hosts')
    const setStandby = async (change: string) => {
      await server.run(`ALTER SYSTEM ${change}`)
      await server.run('SELECT pg_reload_conf()')
    }
    await setStandby("SET synchronous_standby_names = 'nobody'")
    try {
      let hasEnded = true
      let change: Promise<unknown> = Promise.resolve()
      const begin = () => {
        hasEnded = false
        change = b.transact(async tx => {
          await tx.query('SET LOCAL statement_timeout = 0')
          await tx.query("SELECT set_draining('b', 5)")
        })
        const ended = () => {
          hasEnded = true
        }
        change.then(ended, ended)
      }
      const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'
        AND xact_start < clock_timestamp() - interval '10500 milliseconds'`
      const isWaiting = async () => (await server.run(waiting)).trim() === '1'
      await until('it has waited for longer than a change may', 60_000, () => {
        // A commit waits only once the server's checkpointer has read the setting.
        if (hasEnded) begin()
        return isWaiting()
      })
      expect(await a.query('SELECT end_stuck_changes() AS ended')).toEqual([{ ended: 0 }])
      expect(await isWaiting()).toBe(true)
      await setStandby('RESET synchronous_standby_names')
      await change
    } finally {
      await setStandby('RESET synchronous_standby_names')
    }
    await a.close()
    await b.close()
  }, 120_000)
})

// Goal: the server's clock is set back by an hour while a host holds the counter: by that clock the change begins in an
// hour, and it is ended all the same. PostgreSQL's own timeouts would wait for that hour.
test.skipIf(skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)'))(
  'a clock that is set back while a host holds the counter',
  async () => {
    await using pair = await PostgresPair.open()
    const fleet = await newFleet(pair.primary)
    const urls = await Promise.all(['a', 'b'].map(id => admitHost(fleet, { id, name: id })))
    const [a, evil] = await Promise.all(
      urls.map(url => connect(pair.primary, url, { ...patientLimits, lockMs: 1_000 })),
    )
    if (a === undefined || evil === undefined) throw new Error('two hosts')
    const held = Promise.withResolvers<void>()
    const holding = failure(
      evil.transact(async tx => {
        await tx.query('SET LOCAL statement_timeout = 0')
        held.resolve()
        await tx.query('SELECT pg_sleep(3600)')
      }),
    )
    await held.promise
    pair.setClock(-3_600)
    await until('another host changes the directory', 60_000, () =>
      a
        .transact(tx => tx.query("SELECT set_draining('a', 5)"))
        .then(
          () => true,
          () => false,
        ),
    )
    expect((await holding).message).toContain('directory of this fleet')
    await a.close()
    await evil.close()
  },
  180_000,
)
