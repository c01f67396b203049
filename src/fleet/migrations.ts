// The schema of a fleet's directory: numbered steps, each in a transaction, applied by a role that owns the schema.
// Effects: the database's tables.
//
// Hosts one release apart share a directory, so a step expands before a later release contracts: it adds tables and
// columns that older hosts ignore, and removes only what no host of the previous release uses.

import { Fault } from '../base/fault.ts'
import { fleetSchema } from './driver.ts'
import { ownRows } from './migrations/0010-own-rows.ts'
import { guards } from './migrations/0011-guards.ts'
import { shortBudgets } from './migrations/0012-short-budgets.ts'
import { buildNix } from './migrations/0013-build-nix.ts'
import { buildOptions } from './migrations/0014-build-options.ts'
import { buildWaivers } from './migrations/0015-build-waivers.ts'
import { buildClaims } from './migrations/0016-build-claims.ts'
import { egressPolicy } from './migrations/0017-egress-policy.ts'
import { keyNamesAndQuotas } from './migrations/0018-key-names-and-quotas.ts'
import { usageGenerations } from './migrations/0019-usage-generations.ts'
import { oneProcess } from './migrations/0020-one-process.ts'
import { stuckChanges } from './migrations/0021-stuck-changes.ts'
import { samples } from './migrations/0022-samples.ts'
import { sums } from './migrations/0023-sums.ts'
import { hosts } from './migrations/first/0001-hosts.ts'
import { directory } from './migrations/first/0002-directory.ts'
import { attempts } from './migrations/first/0003-attempts.ts'
import { peers } from './migrations/first/0004-peers.ts'
import { books } from './migrations/first/0005-books.ts'
import { shares } from './migrations/first/0006-shares.ts'
import { builds } from './migrations/first/0007-builds.ts'
import { recordedRows } from './migrations/first/0008-recorded-rows.ts'
import { clientMadeKeys } from './migrations/first/0009-client-made-keys.ts'
import type { FleetMigration } from './migrations/migration.ts'
import type { Postgres, Sql } from './postgres.ts'

/** Oldest first, without gaps. Released steps never change. */
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
  egressPolicy,
  keyNamesAndQuotas,
  usageGenerations,
  oneProcess,
  stuckChanges,
  samples,
  sums,
]

/** Returns the newest schema that this executable supports. */
export function newestOf(migrations: readonly FleetMigration[] = FLEET_MIGRATIONS): number {
  return migrations.at(-1)?.to ?? 0
}

/** How many releases a directory may be ahead of a host, which ignores what newer hosts added. */
const releasesAhead = 1

/** Held while the schema is upgraded, so that two upgrades never run concurrently. */
const migrationLock = 0x5374_726f

/**
 * Upgrades the directory to the newest schema. Requires a role that owns it. Returns the names of the applied steps.
 * Fault `fleet.newer`.
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

/**
 * Checks the schema, and returns its version. Faults: `fleet.newer`, `fleet.older`, if this executable does not support
 * it.
 */
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

/** Returns the newest schema of the oldest release whose hosts may run alongside those of the newest. */
function oldestBeside(migrations: readonly FleetMigration[]): number {
  const least = releaseOf(migrations) - releasesAhead
  return newestOf(migrations.filter(({ release }) => release <= least))
}

/** Throws if a host is too old for the new schema and must be upgraded first. Hosts without a lease do not count. */
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
