// The fleet's database for commands of this machine, without a daemon. Effects: reads the configuration and its files,
// connections to PostgreSQL, reads this host's database.

import type { Database } from 'bun:sqlite'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { silentLogger } from '../../base/log.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { adviceFor, reasonOf } from '../../fleet/failures.ts'
import { createFleetAdmin, type FleetAdmin } from '../../fleet/hosts/fleet-admin.ts'
import { checkSchema } from '../../fleet/migrations.ts'
import { poolerProblem, poolerRemedy } from '../../fleet/pooler.ts'
import { openPostgres, type Postgres } from '../../fleet/postgres.ts'
import { fleetTarget } from '../../fleet/target.ts'
import { databaseFile } from '../../host/state-files.ts'
import { readDatabase } from '../../store/reading.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import type { Run } from '../operator-run.ts'

/** Steps of the schema may rewrite tables. */
const patientLimits = { statementMs: 120_000, transactionMs: 300_000, lockMs: 10_000 }

/** Runs `work` on a connection of its own. Faults: `fleet.unavailable`, `fleet.password`, and those of `work`. */
export async function withPostgres<T>(target: PostgresTarget, work: (postgres: Postgres) => Promise<T>): Promise<T> {
  const postgres = await openPostgres({ target, limits: patientLimits, clock: systemClock, log: silentLogger })
  try {
    return await work(postgres)
  } catch (error) {
    throw passwordFaultIn(error) ?? advised(error)
  } finally {
    await postgres.close()
  }
}

/**
 * Refuses a way to the database on which a pooler leaves a host no session of its own. Faults: `fleet.unavailable`,
 * `fleet.password`.
 */
export async function requireSessions(target: PostgresTarget): Promise<void> {
  const problem = await poolerProblem(target).catch((error: unknown) => {
    throw passwordFaultIn(error) ?? advised(error)
  })
  if (problem !== null) throw new AdvisedFault('fleet.unavailable', problem, { remedy: poolerRemedy })
}

/** Names the cause if the operator can correct it: the message for clients is only that the directory is away. */
function advised(error: unknown): unknown {
  const advice = adviceFor(error)
  if (advice === null || (error instanceof Fault && error.code !== 'fleet.unavailable')) return error
  return new AdvisedFault('fleet.unavailable', reasonOf(error), { remedy: advice.remedy, cause: error })
}

/** Why the database is not asked at all, among the causes of a failure. */
function passwordFaultIn(error: unknown): Fault | null {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at instanceof Fault && at.code === 'fleet.password') return at
  }
  return null
}

/** `unreachable`: thrown where the configuration names no database to ask instead. */
export async function withFleetAdmin<T>(
  run: Run,
  unreachable: Fault,
  work: (admin: FleetAdmin) => Promise<T>,
): Promise<T> {
  const target = fleetTarget((await run.config()).config)
  if (target === null) throw unreachable
  return await asRole(run, target, work)
}

/** Runs `work` by statements of a role. Faults: `fleet.*`, and those of `work`. */
export async function asRole<T>(run: Run, target: PostgresTarget, work: (admin: FleetAdmin) => Promise<T>): Promise<T> {
  return await withPostgres(target, async postgres => {
    await checkSchema(postgres)
    const hostId = ownRecords(run.stateDir)?.hostId ?? null
    return await work(createFleetAdmin({ postgres, hostId, clock: systemClock }))
  })
}

/** Returns the fleet's database. Throws Fault `config.invalid`. */
export async function requiredTarget(run: Run): Promise<PostgresTarget> {
  const target = fleetTarget((await run.config()).config)
  if (target !== null) return target
  const message = 'fleet.database is "": name the database in the configuration first (strongroom help fleet)'
  throw new Fault('config.invalid', message, { param: 'fleet.database' })
}

export type OwnRecords = {
  readonly hostId: string
  readonly organizationCount: number
  /** The fleet whose directory the records are a copy of; null if they are this host's own. */
  readonly fleetId: string | null
}

const busyTimeoutMs = 5_000

/** Null if this host has no database yet. Also works next to a running daemon. */
export function ownRecords(stateDir: string): OwnRecords | null {
  const file = join(stateDir, databaseFile)
  if (!existsSync(file)) return null
  return readDatabase(file, busyTimeoutMs, sqlite => {
    const host = sqlite.query<{ value: string }, []>("SELECT value FROM meta WHERE name = 'host_id'").get()
    const organizations = sqlite.query<{ count: number }, []>('SELECT count(*) AS count FROM organizations').get()
    const fleetId = copiedFleetIn(sqlite)
    return host === null ? null : { hostId: host.value, organizationCount: organizations?.count ?? 0, fleetId }
  })
}

function copiedFleetIn(sqlite: Database): string | null {
  // A database that no release with fleets has started on lacks the table.
  const table = sqlite.query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'replica'").get()
  if (table === null) return null
  return (
    sqlite.query<{ fleet_id: string }, []>('SELECT fleet_id FROM replica WHERE is_seeding = 0').get()?.fleet_id ?? null
  )
}
