// Goal: the commands of a fleet make and enter one on a real PostgreSQL, over TLS and by roles with least rights, and
// work with a daemon and without one.

import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { REMEDIES } from '../../../src/base/remedies.ts'
import { collectFleetFacts } from '../../../src/cli/doctor/fleet/fleet.driver.ts'
import { loadConfig } from '../../../src/config/load.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { listenAdmin } from '../../../src/operator/access/socket.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { runWith } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('strongroom fleet', () => {
  let server: PostgresServer
  let dir: string
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'strongroom-fleet-'))
    server = await startPostgres({
      isTls: true,
      access: ['local all all trust', 'hostssl all all 127.0.0.1/32 scram-sha-256'],
    })
    await server.run("ALTER ROLE owner PASSWORD 'of the owner'")
    for (const name of ['a', 'b', 'c']) await server.run(`CREATE ROLE rack_${name} LOGIN PASSWORD 'of ${name}'`)
    writeFileSync(join(dir, 'owner-password'), 'of the owner\n')
  })
  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    rmSync(dir, { recursive: true, force: true })
  })

  /** Runs a command on a host with its own state directory, configuration and role. */
  function host(name: string, database: string, role = name) {
    const [state, config] = [join(dir, `${database}-${name}`), join(dir, `${database}-${name}.toml`)]
    const url = server.url({ role: `rack_${role}`, database })
    writeFileSync(join(dir, `password-${name}`), `of ${role}\n`)
    writeFileSync(
      config,
      `[fleet]\ndatabase = "${url}"\nname = "rack-${name}"\nca_file = "${server.caFile}"\npassword_file = "${join(dir, `password-${name}`)}"\n`,
    )
    const env = { STRONGROOM_STATE_DIR: state, STRONGROOM_CONFIG: config }
    const run = (...argv: string[]) => runWith(env, ['fleet', ...argv])
    return {
      state,
      run,
      events: (...argv: string[]) => runWith(env, ['events', ...argv]),
      document: async (...argv: string[]) => {
        const { code, stdout } = await run(...argv, '--json')
        return { code, document: JSON.parse(stdout) as Record<string, unknown> }
      },
      asOwner: ['--as', server.url({ role: 'owner', database }), '--as-password-file', join(dir, 'owner-password')],
    }
  }

  test('goal: init makes a fleet, join enters it, and both may be repeated', async () => {
    await server.run('CREATE DATABASE first')
    const [a, b, c] = [host('a', 'first'), host('b', 'first'), host('c', 'first')]
    // Without a directory nothing can be entered, and a host's role cannot make one.
    expect((await b.document('join')).document).toMatchObject({ error: { code: 'fleet.older' } })
    expect((await a.run('init')).code).toBe(1)
    const made = await a.run('init', ...a.asOwner)
    expect([made.stderr, made.code]).toEqual(['', 0])
    expect(made.stdout).toContain('rack-a is a host of the fleet in postgres://rack_a@localhost:')
    expect(made.stdout).not.toContain('of a')
    expect(await a.document('init', ...a.asOwner)).toMatchObject({ code: 0, document: { name: 'rack-a', applied: [] } })
    // It has no rights until the owner gives them.
    expect((await b.run('join')).code).toBe(1)
    expect(await b.document('join', ...b.asOwner)).toMatchObject({ code: 0, document: { name: 'rack-b' } })
    expect(await b.document('join')).toMatchObject({ code: 0, document: { name: 'rack-b' } })
    // A role that has a host's rights brings no other host in.
    const second = host('c', 'first', 'b')
    expect((await second.document('join')).document).toMatchObject({ error: { code: 'fleet.forbidden' } })
    expect((await second.document('join', ...c.asOwner)).document).toMatchObject({
      error: { code: 'conflict', message: expect.stringContaining('rack_b') },
    })
    expect((await c.document('init', ...c.asOwner)).document).toMatchObject({ error: { code: 'conflict' } })
    const { document } = await b.document('list')
    expect(document).toMatchObject({
      hosts: [
        { name: 'rack-a', state: 'new', is_this_host: false, role: 'rack_a' },
        { name: 'rack-b', state: 'new', is_this_host: true, role: 'rack_b' },
      ],
    })
    const shown = await a.run('show', 'rack-a')
    expect(shown.stdout).toMatch(/^name: +rack-a \(this host\)$/m)
  })

  test('goal: a host with organizations of its own enters no fleet that has a directory', async () => {
    await server.run('CREATE DATABASE second')
    const [a, b] = [host('a', 'second'), host('b', 'second')]
    expect((await a.run('init', ...a.asOwner)).code).toBe(0)
    const own = await b.run('list')
    expect(own.code).toBe(1)
    rmSync(b.state, { recursive: true, force: true })
    await Bun.write(join(b.state, '.keep'), '')
    const store = openStore(join(b.state, 'strongroom.db'))
    store.directory.transact(tx => insertOrganization(tx, { id: 'o', slug: 'acme', nowMs: 0 }))
    store.close()
    const { code, document } = await b.document('join', ...b.asOwner)
    expect([code, document]).toEqual([
      5,
      { error: expect.objectContaining({ code: 'conflict', message: expect.stringContaining('1 organizations') }) },
    ])
  })

  test('goal: hosts are drained, removed and forgotten by the daemon, and by the database where none runs', async () => {
    await server.run('CREATE DATABASE third')
    const [a, b] = [host('a', 'third'), host('b', 'third')]
    await a.run('init', ...a.asOwner)
    await b.run('join', ...b.asOwner)
    expect((await a.run('drain', 'rack-b')).code).toBe(0)
    expect((await a.document('show', 'rack-b')).document).toMatchObject({ draining_since: expect.any(String) })
    expect((await a.document('undrain', 'rack-b')).document).toMatchObject({ draining_since: null })
    expect((await a.document('remove', 'rack-b')).document).toMatchObject({ error: { code: 'conflict' } })
    expect((await a.document('drain', 'rack-x')).document).toMatchObject({ error: { code: 'not_found' } })
    // The same by a daemon's socket.
    const url = server.url({ role: 'owner', database: 'third', password: 'of%20the%20owner' })
    const postgres = await connect(server, url)
    const [own] = await postgres.query<{ id: string }>("SELECT id FROM hosts WHERE name = 'rack-a'")
    const { admin } = egressAdmin({
      fleet: createFleetAdmin({ postgres, hostId: own?.id ?? null, clock: systemClock }),
    })
    const socket = await listenAdmin(join(a.state, 'admin.sock'), admin)
    expect((await a.document('drain', 'rack-b')).document).toMatchObject({ name: 'rack-b' })
    expect((await a.document('list')).document).toMatchObject({ hosts: [{ is_this_host: true }, { name: 'rack-b' }] })
    // The actions of one host for all are in the events of each.
    const events = JSON.parse((await a.events('--json')).stdout) as { fleet: { actions: object[]; problem: null } }
    expect(events.fleet).toMatchObject({
      problem: null,
      actions: [
        { action: 'host.joined', subject: 'rack-a', host: null, database_role: 'owner' },
        { action: 'host.joined', subject: 'rack-b', host: null, database_role: 'owner' },
        { action: 'host.drained', subject: 'rack-b', host: 'rack-a', database_role: 'rack_a' },
        { action: 'host.undrained', subject: 'rack-b', host: 'rack-a' },
        { action: 'host.drained', subject: 'rack-b', host: null, database_role: 'owner' },
      ],
    })
    expect((await a.events()).stdout).toMatch(/rack-a +host\.drained +rack-b/)
    expect((await a.document('remove', 'rack-b')).code).toBe(0)
    await socket.stop()
    // Its role is left without any right.
    expect((await b.document('list')).code).toBe(1)
    // A host's own role takes no host out.
    expect((await a.document('forget', 'rack-a')).document).toMatchObject({ error: { code: 'fleet.forbidden' } })
    expect((await a.document('forget', 'rack-a', ...a.asOwner)).code).toBe(0)
    expect((await a.document('list')).code).toBe(1)
    await postgres.close()
  })

  test('goal: a host is bound to another role, and to another key, by the owner alone', async () => {
    await server.run('CREATE DATABASE sixth')
    const [a, b] = [host('a', 'sixth'), host('b', 'sixth')]
    await a.run('init', ...a.asOwner)
    await b.run('join', ...b.asOwner)
    const rebind = ['rebind', 'rack-b', '--role', 'rack_c']
    expect((await a.document(...rebind)).document).toMatchObject({ error: { code: 'fleet.forbidden' } })
    expect((await a.document('rebind', 'rack-b', '--role', 'rack_a', ...a.asOwner)).document).toMatchObject({
      error: { code: 'conflict' },
    })
    expect(await a.document(...rebind, ...a.asOwner)).toEqual({ code: 0, document: { name: 'rack-b', role: 'rack_c' } })
    // The role that it had has no right any more.
    expect((await b.document('list')).code).toBe(1)
    // As after a change of its configuration: join brings the role of that.
    expect((await b.document('join', ...b.asOwner)).code).toBe(0)
    expect((await b.document('list')).document).toMatchObject({ hosts: [{ role: 'rack_a' }, { role: 'rack_b' }] })
  })

  test('goal: doctor looks at the fleet of the configuration, and says what is wrong', async () => {
    await server.run('CREATE DATABASE fifth')
    const a = host('a', 'fifth')
    const config = (await loadConfig({ path: join(dir, 'fifth-a.toml'), env: {} })).config
    expect(await collectFleetFacts(config, a.state)).toMatchObject({
      kind: 'unread',
      remedy: REMEDIES['fleet.older'],
    })
    await a.run('init', ...a.asOwner)
    expect(await collectFleetFacts(config, a.state)).toMatchObject({
      kind: 'read',
      isTls: true,
      role: { name: 'rack_a', isSuperuser: false },
      synchronousStandbyNames: '',
      synchronousCommit: 'on',
      hosts: [{ name: 'rack-a', state: 'new', is_this_host: true }],
    })
    const wrong = { ...config, fleet: { ...config.fleet, password_file: join(dir, 'owner-password') } }
    expect(await collectFleetFacts(wrong, a.state)).toMatchObject({
      kind: 'unread',
      reason: expect.stringContaining('password authentication failed'),
    })
    expect(await collectFleetFacts({ ...config, fleet: { ...config.fleet, database: '' } }, a.state)).toBeNull()
  })

  test('goal: migrate says what it did, and takes no other database than that of the configuration', async () => {
    await server.run('CREATE DATABASE fourth')
    const a = host('a', 'fourth')
    await a.run('init', ...a.asOwner)
    expect(await a.document('migrate', ...a.asOwner)).toEqual({ code: 0, document: { applied: [] } })
    const other = ['--as', server.url({ role: 'owner', database: 'first' })]
    const { code, document } = await a.document('migrate', ...other)
    expect([code, document]).toMatchObject([2, { error: { message: expect.stringContaining('another database') } }])
  })
})
