// A directory of a fleet in a database of its own, on a test's PostgreSQL. Effects: a database, connections.

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import type { PostgresLimits, PostgresTarget } from '../../../src/fleet/driver.ts'
import { hostById, joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { migrateFleet } from '../../../src/fleet/migrations.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import { grantHost } from '../../../src/fleet/rights.ts'
import type { PostgresServer } from './server.ts'

/** Where nothing waits for an outage to end: a machine that holds a statement or this process up fails no test. */
export const patientLimits: Partial<PostgresLimits> = {
  connectMs: 30_000,
  statementMs: 30_000,
  lockMs: 30_000,
  transactionMs: 60_000,
}

let databaseCount = 0

const template = 'fleet_template'

/** Makes a database with a directory; returns the address for its owner. */
export async function newFleet(server: PostgresServer): Promise<string> {
  databaseCount += 1
  const database = `fleet_${databaseCount}`
  await server.run([
    `CREATE DATABASE ${database} TEMPLATE ${template} STRATEGY FILE_COPY`,
    `\\connect ${database}`,
    'UPDATE strongroom.fleet SET id = gen_random_uuid()',
  ])
  return server.url({ database })
}

/** Makes the directory that `newFleet` copies: on the server whose files all servers copy (cluster.ts). */
export async function addFleetTemplate(server: PostgresServer): Promise<void> {
  await server.run(`CREATE DATABASE ${template}`)
  const postgres = await connect(server, server.url({ database: template }))
  await migrateFleet(postgres)
  await postgres.close()
}

/**
 * As `strongroom fleet join`: the host gets a role of its own, unless it has it. Returns the address by which it signs
 * in; `url` is the owner's.
 */
export async function admitHost(url: string, { id, name }: { id: string; name: string }): Promise<string> {
  const role = roleOf(id)
  await asOwner(url, async owner => {
    const known = await hostById(owner, id)
    if (known?.role === role) return
    await owner.transactPlain(async tx => {
      await tx.query(`DO $$ BEGIN CREATE ROLE ${role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
      await grantHost(tx, role)
    })
    await owner.transact(async tx => {
      if (known === null) await joinHost(tx, { id, name, role, nowMs: Date.now() })
      else await tx.query('SELECT rebind_host($1, $2)', [id, role])
    })
  })
  return urlOfHost(url, id)
}

/** `url`: the owner's. */
export async function asOwner<T>(url: string, work: (owner: Postgres) => Promise<T>): Promise<T> {
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.problem)
  const target = { ...parsed.address, caPem: null, applicationName: 'owner' }
  const owner = await openPostgres({ target, limits: patientLimits, clock: systemClock, log: silentLogger })
  try {
    return await work(owner)
  } finally {
    await owner.close()
  }
}

export function urlOfHost(url: string, hostId: string): string {
  return url.replace(/\/\/[^@/]+@/, `//${roleOf(hostId)}@`)
}

/** The role with which a host signs in. */
export function roleOf(hostId: string): string {
  return `host_${hostId.replaceAll('-', '_')}`
}

export function targetOf(server: PostgresServer, url: string): PostgresTarget {
  const parsed = parseDatabaseUrl(url)
  if (!parsed.ok) throw new Error(parsed.problem)
  return { ...parsed.address, caPem: server.caPem, applicationName: 'test' }
}

/** `limits` of a host's own, `POSTGRES_LIMITS`, where the test ends or holds up the server. */
export async function connect(
  server: PostgresServer,
  url: string,
  limits: Partial<PostgresLimits> = patientLimits,
): Promise<Postgres> {
  return await openPostgres({ target: targetOf(server, url), limits, clock: systemClock, log: silentLogger })
}
