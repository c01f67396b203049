// Goal: PgBouncer between a host and its fleet's database serves in session mode, as it is configured by default; in
// every other mode doctor, `fleet init` and `fleet join` name it and the remedy, and change nothing.

import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, patientLimits } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { collectFleetFacts } from '../../../src/cli/doctor/fleet/fleet.driver.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { poolerRemedy } from '../../../src/fleet/pooler.ts'
import { openFleet } from '../../rigs/fleet/fleet.ts'
import { hasPgBouncer, startPgBouncer } from '../../rigs/postgres/pgbouncer.ts'
import { runWith } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

const isMissing = skipUnless(
  hasPostgres && hasPgBouncer,
  'needs PostgreSQL and PgBouncer (scripts/setup installs them)',
)

let server: PostgresServer
startForTests(started => {
  server = started
})

/** Commands and doctor of a host whose configuration names this way to the database. */
function hostOf(way: PostgresServer, database: string) {
  const dir = mkdtempSync(join(tmpdir(), 'srt-pooler-'))
  const [state, path] = [join(dir, 'state'), join(dir, 'strongroom.toml')]
  writeFileSync(path, `[fleet]\ndatabase = "${way.url({ database })}"\nname = "rack-a"\n`)
  const env = { STRONGROOM_STATE_DIR: state, STRONGROOM_CONFIG: path }
  return {
    run: (...argv: string[]) => runWith(env, ['fleet', ...argv]),
    facts: async () => collectFleetFacts((await loadConfig({ path, env: {} })).config, state),
    hasState: () => existsSync(state),
    [Symbol.dispose]: () => rmSync(dir, { recursive: true, force: true }),
  }
}

describe.skipIf(isMissing)('PgBouncer', () => {
  const busy = { min_pool_size: '4', server_round_robin: '1' }
  const ways = [
    { mode: 'transaction', settings: {} },
    { mode: 'transaction', settings: { default_pool_size: '1' } },
    { mode: 'transaction', settings: busy },
    { mode: 'statement', settings: {} },
  ] as const
  test.each(ways)(
    'goal: $mode mode with $settings is named, before anything is written',
    async ({ mode, settings }) => {
      await server.run(['DROP DATABASE IF EXISTS pooled', 'CREATE DATABASE pooled'])
      await using way = await startPgBouncer(server, mode, settings)
      using host = hostOf(way, 'pooled')
      expect(await host.facts()).toMatchObject({
        kind: 'unread',
        reason: expect.stringContaining(`a pooler in ${mode} mode`),
        remedy: poolerRemedy,
      })
      for (const command of ['init', 'join']) {
        const { code, stderr } = await host.run(command)
        expect([code, stderr]).toEqual([1, expect.stringContaining('pool_mode = session')])
      }
      expect(await server.run("SELECT to_regnamespace('strongroom') IS NULL", 'pooled')).toBe('t\n')
    },
  )

  test('goal: session mode is as good as the server itself: a fleet is made, and a create becomes ready', async () => {
    await server.run('CREATE DATABASE sessions')
    await using way = await startPgBouncer(server, 'session')
    using host = hostOf(way, 'sessions')
    const made = await host.run('init')
    expect([made.stderr, made.code]).toEqual(['', 0])
    expect(await host.facts()).toMatchObject({ kind: 'read', hosts: [{ name: 'rack-a', is_this_host: true }] })
    await using fleet = await openFleet(way)
    const [east, west] = [await fleet.host('east'), await fleet.host('west')]
    const { name } = await east.created()
    await until('ready', 60_000, async () => (await west.shown(name)).status === 'ready')
  })

  test('goal: a pool without a session to spare is an outage with an end, and no request waits for ever', async () => {
    await using way = await startPgBouncer(server, 'session', { default_pool_size: '1' })
    const holder = await connect(way, way.url())
    await holder.query('SELECT 1')
    const other = await connect(way, way.url(), { ...patientLimits, connectMs: 500 })
    expect(await failure(other.query('SELECT 1'))).toMatchObject({ code: 'fleet.unavailable' })
    await holder.close()
    await until('the session is free', 30_000, async () => {
      return await other.query('SELECT 1').then(
        () => true,
        () => false,
      )
    })
    await other.close()
  })
})
