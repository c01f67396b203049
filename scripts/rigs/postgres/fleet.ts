// A directory of a fleet in a database of its own, on a test's PostgreSQL. Effects: a database, connections.

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import type { PostgresLimits, PostgresTarget } from '../../../src/fleet/driver.ts'
import { migrateFleet } from '../../../src/fleet/migrations.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import type { PostgresServer } from './server.ts'

/** Where nothing waits for an outage to end: a machine that holds a statement or this process up fails no test. */
export const patientLimits: Partial<PostgresLimits> = {
  connectMs: 30_000,
  statementMs: 30_000,
  lockMs: 30_000,
  transactionMs: 60_000,
}

let databaseCount = 0

/** Makes a database with a directory; returns the address for its owner. */
export async function newFleet(server: PostgresServer): Promise<string> {
  databaseCount += 1
  const database = `fleet_${databaseCount}`
  await server.run(`CREATE DATABASE ${database}`)
  const url = server.url({ database })
  const postgres = await connect(server, url)
  await migrateFleet(postgres)
  await postgres.close()
  return url
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
