// Enters this host in a fleet, which it may have to make first. Effects: statements to the database; makes this host's
// own database where there is none, for its id.

import { join } from 'node:path'
import type { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { fleetIdOf } from '../../fleet/directory/feed.ts'
import { leaveDirectory, seedDirectory } from '../../fleet/directory/seed.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { hostById, hostNamed, joinHost, listHosts, ownersAlone, rebindHost } from '../../fleet/hosts/hosts.query.ts'
import { checkSchema, migrateFleet } from '../../fleet/migrations.ts'
import type { Postgres } from '../../fleet/postgres.ts'
import { grantHost, hostRoles } from '../../fleet/rights.ts'
import { databaseFile } from '../../host/state-files.ts'
import { ensureDir } from '../../linux/files.ts'
import { lockFile } from '../../linux/lock.ts'
import { type LocalDirectory, openBeside, openStore } from '../../store/db.ts'
import { ownRecords, requireSessions, withPostgres } from './direct.ts'

export type MemberParts = {
  /** The configured role with which this host signs in. */
  readonly target: PostgresTarget
  /** Null if that role owns the database. */
  readonly owner: PostgresTarget | null
  readonly name: string
  readonly stateDir: string
  readonly clock: typeof systemClock
}

export type Entered = { readonly name: string; readonly hostId: string; readonly applied: readonly string[] }

/** Creates a fleet. Faults: `conflict` (another host made a fleet there), `fleet.*`. */
export async function initFleet(parts: MemberParts): Promise<Entered> {
  const { target, owner } = parts
  const { hostId } = requiredRecords(parts.stateDir)
  await requireSessions(owner ?? target)
  const applied = await withPostgres(owner ?? target, async postgres => {
    const steps = await migrateFleet(postgres)
    const others = (await listHosts(postgres)).filter(({ id }) => id !== hostId)
    if (others.length > 0) {
      const message = `the database has the directory of a fleet already, with ${others.length} hosts: enter it by \`strongroom fleet join\``
      throw new Fault('conflict', message)
    }
    await enter(postgres, parts, hostId)
    // This host's records contain ended keys and instances, which a host's role cannot add to a directory.
    await withRecords(parts.stateDir, directory => seedDirectory({ directory, hostId, postgres }))
    return steps
  })
  return { name: parts.name, hostId, applied }
}

/**
 * Needs the role that owns the database, but where this host is in it as it is configured. Faults: `conflict` (the
 * name or the role is taken, this host has organizations of its own), `fleet.*`. A host that was removed or forgotten
 * returns with its records, which are a copy of this fleet's, and what they say of its usage.
 */
export async function joinFleet(parts: MemberParts): Promise<Entered> {
  const { target, owner } = parts
  const { hostId, organizationCount, fleetId } = requiredRecords(parts.stateDir)
  await requireSessions(owner ?? target)
  await withPostgres(owner ?? target, async postgres => {
    // A role that is no host's yet may not even look.
    await checkSchema(postgres).catch((error: unknown) => {
      throw ownersAlone(error)
    })
    const isCopy = fleetId !== null && fleetId === (await fleetIdOf(postgres))
    if (organizationCount > 0 && !isCopy && (await hostById(postgres, hostId)) === null) {
      const message = `this host has ${organizationCount} organizations of its own, which a fleet with a directory does not take over`
      throw new Fault('conflict', `${message}: enter a host without any, or one whose records are a copy of this fleet`)
    }
    await enter(postgres, parts, hostId)
  })
  return { name: parts.name, hostId, applied: [] }
}

/** The last host's records are its own again; returns the number of rows compared. Faults: `conflict`, `fleet.*`. */
export async function leaveFleet({ target, stateDir }: MemberParts): Promise<number> {
  const { hostId } = requiredRecords(stateDir)
  using _ = lockFile(`${stateDir}/lock`)
  return await withPostgres(target, postgres =>
    withRecords(stateDir, directory => leaveDirectory({ directory, hostId, postgres })),
  )
}

/** Beside a running daemon too. */
async function withRecords<T>(stateDir: string, work: (directory: LocalDirectory) => Promise<T>): Promise<T> {
  const { directory, close } = openBeside(join(stateDir, databaseFile))
  try {
    return await work(directory)
  } finally {
    close()
  }
}

export type Rebound = { readonly name: string; readonly role: string }

/**
 * The host signs in as `role` from now on, and the next key that it publishes for other hosts is the one that it is
 * bound to. Faults: `not_found`, `conflict` (another host has the role), `fleet.*`.
 */
export async function rebindAs(
  owner: PostgresTarget,
  { name, role }: { readonly name: string; readonly role: string | null },
): Promise<Rebound> {
  return await withPostgres(owner, async postgres => {
    await checkSchema(postgres)
    const bound = { name, role: role ?? (await hostNamed(postgres, name)).role }
    await rebindHost(postgres, bound)
    return bound
  })
}

/** Names of the steps; the rights of every host's role follow. Faults: `conflict` (a host is too old), `fleet.*`. */
export async function migrateAs(owner: PostgresTarget): Promise<string[]> {
  return await withPostgres(owner, async postgres => {
    const steps = await migrateFleet(postgres)
    for (const role of await hostRoles(postgres)) await postgres.transactPlain(tx => grantHost(tx, role))
    return steps
  })
}

/** The first time, or as another role. Faults: `conflict`, `fleet.forbidden`, `fleet.unavailable`. */
async function enter(postgres: Postgres, { name, target, owner, clock }: MemberParts, hostId: string): Promise<void> {
  const known = await hostById(postgres, hostId)
  if (known !== null && known.name !== name) {
    throw new Fault(
      'conflict',
      `this host is in the fleet as ${known.name}: set fleet.name to that, or remove it first`,
    )
  }
  const role = target.user
  if (owner !== null) await postgres.transactPlain(tx => grantHost(tx, role))
  if (known === null) await postgres.transact(tx => joinHost(tx, { id: hostId, name, role, nowMs: clock.nowMs() }))
  else if (known.role !== role) await rebindHost(postgres, { name, role })
}

function requiredRecords(stateDir: string) {
  const records = ownRecords(stateDir)
  if (records !== null) return records
  // Only the daemon reads keys, tokens and the database.
  process.umask(0o077)
  ensureDir(stateDir, { mode: 0o711 })
  const store = openStore(join(stateDir, databaseFile))
  const { hostId } = store
  store.close()
  return { hostId, organizationCount: 0, fleetId: null }
}
