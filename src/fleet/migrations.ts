// The schema of a fleet's directory: numbered steps, each in a transaction, applied by a role that owns the schema.
// Effects: the database's tables.
//
// Hosts one release apart work on one directory, so a step expands before a later release contracts: it adds tables and
// columns that older hosts need not know, and takes away only what no host of the release before uses.

import { Fault } from '../base/fault.ts'
import { fleetSchema } from './driver.ts'
import { hosts } from './migrations/0001-hosts.ts'
import { directory } from './migrations/0002-directory.ts'
import { attempts } from './migrations/0003-attempts.ts'
import { peers } from './migrations/0004-peers.ts'
import { books } from './migrations/0005-books.ts'
import { shares } from './migrations/0006-shares.ts'
import { builds } from './migrations/0007-builds.ts'
import { recordedRows } from './migrations/0008-recorded-rows.ts'
import { clientMadeKeys } from './migrations/0009-client-made-keys.ts'
import { ownRows } from './migrations/0010-own-rows.ts'
import { guards } from './migrations/0011-guards.ts'
import { shortBudgets } from './migrations/0012-short-budgets.ts'
import { buildNix } from './migrations/0013-build-nix.ts'
import { buildOptions } from './migrations/0014-build-options.ts'
import { buildWaivers } from './migrations/0015-build-waivers.ts'
import { buildClaims } from './migrations/0016-build-claims.ts'
import type { FleetMigration } from './migrations/migration.ts'
import type { Postgres, Sql } from './postgres.ts'

/** Oldest first, without a gap. Released ones never change. */
export const FLEET_MIGRATIONS: readonly FleetMigration[] = [
  hosts,
  directory,
  attempts,
  peers,
  books,
  shares,
  builds,
  recordedRows,
  clientMadeKeys,
  ownRows,
  guards,
  shortBudgets,
  buildNix,
  buildOptions,
  buildWaivers,
  buildClaims,
]

/** The newest schema that this executable knows. */
export function newestOf(migrations: readonly FleetMigration[] = FLEET_MIGRATIONS): number {
  return migrations.at(-1)?.to ?? 0
}

/** A host works on a directory so many releases newer than itself: what newer hosts added stands beside its own. */
const releasesAhead = 1

/** Held while the schema is brought up to date, so that two at once do not meet. */
const migrationLock = 0x5374_726f

/**
 * Brings the directory to the newest schema; needs a role that owns it. Returns the names of the steps applied.
 * Fault: `fleet.newer`.
 */
export async function migrateFleet(
  postgres: Pick<Postgres, 'transactPlain'>,
  migrations: readonly FleetMigration[] = FLEET_MIGRATIONS,
): Promise<string[]> {
  return await postgres.transactPlain(async tx => {
    await tx.query('SELECT pg_advisory_xact_lock($1)', [migrationLock])
    await tx.query(`CREATE SCHEMA IF NOT EXISTS ${fleetSchema}`)
    await tx.query(`CREATE TABLE IF NOT EXISTS migrations (
      version    integer     PRIMARY KEY,
      release    integer     NOT NULL,
      name       text        NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT now()
    )`)
    const { version } = await schemaOf(tx)
    if (version > newestOf(migrations)) {
      const message = `the directory has schema ${version}, this executable brings it to ${newestOf(migrations)} alone`
      throw new Fault('fleet.newer', `${message}: nothing was changed`)
    }
    const steps = migrations.filter(({ to }) => to > version)
    if (version > 0 && steps.length > 0) await refuseOldHosts(tx, oldestBeside(migrations))
    for (const { to, release, name, sql } of steps) {
      await tx.query(sql)
      await tx.query('INSERT INTO migrations (version, release, name) VALUES ($1, $2, $3)', [to, release, name])
    }
    return steps.map(({ name }) => name)
  })
}

/** Refuses a directory that this executable cannot work on. Faults: `fleet.newer`, `fleet.older`. */
export async function checkSchema(sql: Sql, migrations: readonly FleetMigration[] = FLEET_MIGRATIONS): Promise<number> {
  const [{ found } = { found: false }] = await sql.query<{ found: boolean }>(
    `SELECT to_regclass('${fleetSchema}.migrations') IS NOT NULL AS found`,
  )
  const { version, release } = found ? await schemaOf(sql) : NONE
  const newest = newestOf(migrations)
  if (version > newest && release > releaseOf(migrations) + releasesAhead) throw newer(version, migrations)
  if (version < newest) {
    const message = version === 0 ? 'the database has no directory of a fleet' : `the directory has schema ${version}`
    throw new Fault('fleet.older', `${message}, this host needs ${newest}; nothing was changed`)
  }
  return version
}

type Schema = Pick<FleetMigration, 'release'> & { readonly version: number }

const NONE: Schema = { version: 0, release: 0 }

async function schemaOf(sql: Sql): Promise<Schema> {
  const [row] = await sql.query<Schema>('SELECT version, release FROM migrations ORDER BY version DESC LIMIT 1')
  return row ?? NONE
}

function releaseOf(migrations: readonly FleetMigration[]): number {
  return migrations.at(-1)?.release ?? 0
}

/** The newest schema of the oldest release whose hosts work beside those of the newest one. */
function oldestBeside(migrations: readonly FleetMigration[]): number {
  const least = releaseOf(migrations) - releasesAhead
  return newestOf(migrations.filter(({ release }) => release <= least))
}

/** A host that the new schema would be too far ahead of must be upgraded first; one that is gone does not count. */
async function refuseOldHosts(sql: Sql, leastSchema: number): Promise<void> {
  const old = await sql.query<{ name: string }>(
    "SELECT name FROM host_states WHERE has_lease AND (report ->> 'schema')::integer < $1 ORDER BY name LIMIT 8",
    [leastSchema],
  )
  if (old.length === 0) return
  const names = old.map(({ name }) => name).join(', ')
  throw new Fault('conflict', `upgrade these hosts first; they support only schemas before ${leastSchema}: ${names}`)
}

function newer(version: number, migrations: readonly FleetMigration[]): Fault {
  const message = `the directory has schema ${version}, of a release that this executable does not work beside`
  return new Fault('fleet.newer', `${message}: it supports schema ${newestOf(migrations)} and that of the next release`)
}
