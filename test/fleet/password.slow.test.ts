// Goal: the password of the fleet's database goes to no server but by SCRAM, inside TLS either: neither to a real
// PostgreSQL whose pg_hba.conf says `password` or `md5`, nor to a server that passes for one.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { TLSSocket } from 'node:tls'
import { lastingPort } from '../../scripts/rigs/free-port.ts'
import { patientLimits } from '../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { openSingle, POSTGRES_LIMITS, type PostgresTarget } from '../../src/fleet/driver.ts'
import { reasonOf } from '../../src/fleet/failures.ts'
import { openPostgres } from '../../src/fleet/postgres.ts'
import { fleetTarget } from '../../src/fleet/target.ts'
import { openAuthority } from '../../src/http/authority.ts'

const password = 'correct horse battery staple'
const limits = { ...POSTGRES_LIMITS, ...patientLimits }

/** By a connection of the pool, and by the one that listens. */
async function refusals(target: PostgresTarget): Promise<readonly string[]> {
  const postgres = await openPostgres({ target, limits, clock: systemClock, log: silentLogger })
  const pooled = reasonOf(await failure(postgres.query('SELECT 1')))
  await postgres.close()
  const single = await openSingle(target, limits)
  const listening = reasonOf(await failure(single.connect()))
  single.destroy()
  return [pooled, listening]
}

const refusal = (how: string) =>
  `the database requests the password ${how}, and this host proves it by SCRAM alone (fleet.password)`

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('a real server', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres({
      isTls: true,
      access: [
        'local all all trust',
        'hostssl all in_clear 127.0.0.1/32 password',
        'hostssl all in_md5 127.0.0.1/32 md5',
        'hostssl all in_scram 127.0.0.1/32 scram-sha-256',
      ],
    })
    await server.run(`CREATE ROLE in_clear LOGIN PASSWORD '${password}'`)
    await server.run(`SET password_encryption = 'md5'; CREATE ROLE in_md5 LOGIN PASSWORD '${password}'`)
    await server.run(`CREATE ROLE in_scram LOGIN PASSWORD '${password}'`)
  }, 120_000)
  afterAll(() => server[Symbol.asyncDispose]())

  const target = (user: string): PostgresTarget => ({
    ...{ host: 'localhost', port: server.port, user, database: 'postgres', password },
    ...{ caPem: server.caPem, applicationName: 'test' },
  })

  // Goal: neither method of pg_hba.conf gets the password, and SCRAM signs in.
  test('asks by `password`, by `md5` and by SCRAM', async () => {
    expect(await refusals(target('in_clear'))).toEqual([refusal('in clear text'), refusal('in clear text')])
    expect(await refusals(target('in_md5'))).toEqual([refusal('as an MD5 digest'), refusal('as an MD5 digest')])
    const postgres = await openPostgres({ target: target('in_scram'), limits, clock: systemClock, log: silentLogger })
    expect(await postgres.query('SELECT 1 AS one')).toEqual([{ one: 1 }])
    await postgres.close()
  })
})

// Goal: a password that was changed in the database and in its file needs no restart; while the file is missing, or
// is no file, the last one counts.
test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('a changed password', async () => {
  await using server = await startPostgres({
    isTls: true,
    access: ['local all all trust', 'hostssl all rack 127.0.0.1/32 scram-sha-256'],
  })
  await server.run("CREATE ROLE rack LOGIN PASSWORD 'first'")
  const root = mkdtempSync(join(tmpdir(), 'srt-changed-'))
  const [file, caFile] = [join(root, 'password'), join(root, 'ca')]
  writeFileSync(file, 'first\n')
  writeFileSync(caFile, server.caPem ?? '')
  const database = `postgres://rack@localhost:${server.port}/postgres`
  const own = { database, password_file: file, ca_file: caFile, name: 'rack-1' }
  const target = fleetTarget({ fleet: { ...defaultConfig().fleet, ...own } })
  if (target === null) throw new Error('a database is named')
  const connect = async () => {
    const single = await openSingle(target, limits)
    return await single.client
      .connect()
      .then(() => 'connected', reasonOf)
      .finally(single.destroy)
  }
  expect(await connect()).toBe('connected')
  await server.run("ALTER ROLE rack PASSWORD 'second'")
  expect(await connect()).toContain('28P01')
  writeFileSync(file, 'second')
  expect(await connect()).toBe('connected')
  rmSync(file)
  expect(await connect()).toBe('connected')
  rmSync(root, { recursive: true, force: true })
})

describe('a server that passes for the database', () => {
  const root = mkdtempSync(join(tmpdir(), 'srt-password-'))
  afterAll(() => rmSync(root, { recursive: true, force: true }))

  /** Inside TLS it asks by one message of the protocol (PostgreSQL, 54.7), and keeps all that it receives. */
  async function impostor(asks: readonly number[]) {
    const authority = await openAuthority({
      ...{ kind: 'clients', stateDir: root, nowMs: Date.now, random: systemRandom, names: ['localhost'] },
    })
    const pair = await authority.issue(['localhost'], 30)
    const told: Buffer[] = []
    const sockets = new Set<Socket>()
    const server: Server = createServer(socket => {
      sockets.add(socket)
      socket.once('data', () => {
        socket.write('S')
        const secure = new TLSSocket(socket, { isServer: true, cert: pair.cert, key: pair.key })
        secure.on('error', () => {})
        secure.once('data', () => secure.write(Buffer.from(asks)))
        secure.on('data', data => told.push(data))
      })
      socket.on('error', () => {})
    })
    const port = lastingPort()
    await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
    return {
      target: {
        ...{ host: 'localhost', port, user: 'rack', database: 'fleet', password },
        ...{ caPem: authority.caPem, applicationName: 'test' },
      },
      told: () => Buffer.concat(told).toString('latin1'),
      [Symbol.asyncDispose]: async () => {
        for (const socket of sockets) socket.destroy()
        await new Promise(resolve => server.close(resolve))
      },
    }
  }

  // Goal: the same for a server that only passes for the database, inside TLS.
  test.each([
    ['in clear text', [0x52, 0, 0, 0, 8, 0, 0, 0, 3]],
    ['as an MD5 digest', [0x52, 0, 0, 0, 12, 0, 0, 0, 5, 1, 2, 3, 4]],
  ])('asks for it %s', async (how, asks) => {
    await using server = await impostor(asks)
    expect(await refusals(server.target)).toEqual([refusal(how), refusal(how)])
    expect(server.told()).toContain('rack')
    expect(server.told()).not.toContain(password)
    // No message with a password (`p`) was sent.
    expect(server.told()).not.toMatch(/p\0\0\0/)
  })
})
