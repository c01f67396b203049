// Hosts in the directory: list, join, drain, remove. Effects: statements to PostgreSQL.

import { Fault } from '../../base/fault.ts'
import { fleetSchema } from '../driver.ts'
import { noRight, sqlStateOf } from '../failures.ts'
import type { NumberedTransaction, Postgres, Sql } from '../postgres.ts'
import { grantHost, revokeHost } from '../rights.ts'

/** A host in the view host_states. */
export type HostState = {
  readonly id: string
  readonly name: string
  readonly role: string
  readonly joinedMs: number
  readonly drainingMs: number | null
  readonly platform: string | null
  /** Number of instances that it has and can take in addition. */
  readonly places: number
  /** The host's report, possibly in the form of another release. */
  readonly report: Readonly<Record<string, unknown>> | null
  readonly renewedAt: Date | null
  readonly lostAt: Date | null
  readonly silentMs: number | null
  readonly hasLease: boolean
  /** Address for other hosts; null if it does not serve them. */
  readonly peerAddress: string | null
  /** Certificate (PEM) for other hosts; null if it has published none. */
  readonly peerCertificate: string | null
  /** Instances that are not terminated. */
  readonly livingCount: number
  /** Instances that have a VM or will get one. */
  readonly takenCount: number
  /** Builds queued or running there, or with their source still there. */
  readonly buildCount: number
}

/** No share: hosts are the operator's. */
const hostCountMax = 1_000

const COLUMNS = `s.id, s.name, s.database_role AS role, s.joined_ms AS "joinedMs", s.draining_ms AS "drainingMs",
  s.platform, s.places, s.report, s.renewed_at AS "renewedAt", s.lost_at AS "lostAt", s.silent_ms AS "silentMs",
  s.has_lease AS "hasLease",
  (SELECT address FROM peers p WHERE p.host_id = s.id) AS "peerAddress",
  (SELECT certificate FROM peers p WHERE p.host_id = s.id) AS "peerCertificate",
  (SELECT count(*) FROM instances i WHERE i.host_id = s.id AND i.status <> 'terminated') AS "livingCount",
  (SELECT count(*) FROM instances i
    WHERE i.host_id = s.id AND i.status IN ('provisioning', 'ready', 'terminating')) AS "takenCount",
  (SELECT count(*) FROM builds b
    WHERE (b.host_id = s.id AND b.state IN ('queued', 'starting', 'running'))
      OR (b.source_host_id = s.id AND b.state = 'starting')) AS "buildCount"`

/** Lists hosts by name. */
export async function listHosts(sql: Sql): Promise<HostState[]> {
  return await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s ORDER BY s.name LIMIT $1`, [hostCountMax])
}

/** Returns a host. Fault `not_found`. */
export async function hostNamed(sql: Sql, name: string): Promise<HostState> {
  const [found] = await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s WHERE s.name = $1`, [name])
  if (found === undefined) throw new Fault('not_found', `the fleet has no host ${name}`, { param: 'name' })
  return found
}

/** Returns a host; null if the fleet does not have it. */
export async function hostById(sql: Sql, id: string): Promise<HostState | null> {
  const [found] = await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s WHERE s.id = $1`, [id])
  return found ?? null
}

export type NewHost = {
  readonly id: string
  readonly name: string
  /** Database role with which only this host signs in. */
  readonly role: string
  readonly nowMs: number
}

/**
 * Adds a host. Requires the role that owns the schema. Fault `conflict` if another host has the name or the role, or
 * the host exists already.
 */
export async function joinHost(tx: NumberedTransaction, { id, name, role, nowMs }: NewHost): Promise<void> {
  try {
    await tx.query('SELECT join_host($1, $2, $3, $4)', [id, name, role, nowMs])
  } catch (error) {
    if (sqlStateOf(error) !== uniqueViolation) throw ownersAlone(error)
    const message = `the fleet has a host ${name}, or this host, or one that signs in as the role ${role}`
    throw new Fault('conflict', message, { cause: error })
  }
}

const uniqueViolation = '23505'

/** Converts a missing right to a Fault that requires the schema's owner. Returns any other error unchanged. */
export function ownersAlone(error: unknown): unknown {
  return sqlStateOf(error) === noRight ? ownerNeeded(error) : error
}

function ownerNeeded(cause?: unknown): Fault {
  const message = 'hosts join, leave and get another role by the role that owns the database alone'
  return new Fault('fleet.forbidden', message, { cause })
}

/**
 * Binds a host to a role, and removes its key for other hosts; it publishes a new one. Requires the role that owns the
 * schema. Faults: `not_found`, `conflict` (another host has the role), `fleet.forbidden`.
 */
export async function rebindHost(
  postgres: Pick<Postgres, 'query' | 'transact' | 'transactPlain'>,
  { name, role }: { readonly name: string; readonly role: string },
): Promise<void> {
  const before = await postgres.transact(async tx => {
    const host = await hostNamed(tx, name)
    try {
      await tx.query('SELECT rebind_host($1, $2)', [host.id, role])
    } catch (error) {
      if (sqlStateOf(error) !== uniqueViolation) throw ownersAlone(error)
      throw new Fault('conflict', `another host signs in as the role ${role}`, { cause: error })
    }
    return host.role
  })
  await takeRights(postgres, before)
  const owner = "SELECT pg_has_role($1, n.nspowner, 'MEMBER') AS is FROM pg_namespace n WHERE nspname = $2"
  await postgres.transactPlain(async tx => {
    const [row] = await tx.query<{ is: boolean }>(owner, [role, fleetSchema])
    if (row?.is !== true) await grantHost(tx, role)
  })
}

/**
 * Revokes the rights of a role with which no host signs in any more. Ends its connections if the signed-in role may,
 * because they keep locks.
 */
export async function takeRights(postgres: Pick<Postgres, 'query' | 'transactPlain'>, role: string): Promise<void> {
  const isRevoked = await postgres.transactPlain(async tx => {
    const unused = `SELECT 1 FROM pg_roles r JOIN pg_namespace n ON n.nspname = $2
      WHERE r.rolname = $1 AND NOT pg_has_role(r.oid, n.nspowner, 'MEMBER')
        AND NOT EXISTS (SELECT 1 FROM hosts WHERE database_role = $1)`
    if ((await tx.query(unused, [role, fleetSchema])).length === 0) return false
    await revokeHost(tx, role)
    return true
  })
  if (!isRevoked) return
  const sessions = 'FROM pg_stat_activity WHERE usename = $1 AND datname = current_database()'
  await postgres.query(`SELECT pg_terminate_backend(pid) ${sessions}`, [role]).catch((error: unknown) => {
    if (sqlStateOf(error) !== noRight) throw error
  })
}

/** Sets whether a host drains. Idempotent. Fault `not_found`. */
export async function setDraining(tx: NumberedTransaction, name: string, sinceMs: number | null): Promise<void> {
  const [row] = await tx.query<{ done: boolean }>('SELECT set_draining($1, $2) AS done', [name, sinceMs])
  if (row?.done !== true) throw new Fault('not_found', `the fleet has no host ${name}`, { param: 'name' })
}

/**
 * Removes a host that has drained and holds nothing, with the results of its builds. Faults: `not_found`, `conflict`.
 */
export async function removeHost(tx: NumberedTransaction, name: string, endBuilds: GiveUp): Promise<void> {
  const host = await hostNamed(tx, name)
  if (host.drainingMs === null) throw new Fault('conflict', `${name} takes instances: drain it first`)
  if (host.livingCount > 0) {
    throw new Fault(
      'conflict',
      `${name} has ${host.livingCount} instances: delete them, or wait until their owners have`,
    )
  }
  if (host.buildCount > 0) {
    throw new Fault('conflict', `${name} has ${host.buildCount} builds that wait or run: wait, or cancel them`)
  }
  await requireOwner(tx)
  await endBuilds(tx, host.id)
  await deleteHost(tx, host)
}

/** Gives up the instances of a host within the transaction, and returns their number. */
export type GiveUp = (tx: NumberedTransaction, hostId: string) => Promise<number>

/**
 * Removes a host that will not return, and gives up its instances. Returns their number. Faults: `not_found`,
 * `conflict` (it has a lease, so it is running).
 */
export async function forgetHost(tx: NumberedTransaction, name: string, giveUp: GiveUp): Promise<number> {
  const host = await hostNamed(tx, name)
  if (host.hasLease)
    throw new Fault('conflict', `${name} is there and renews its lease: stop it, or drain and remove it`)
  await requireOwner(tx)
  const count = await giveUp(tx, host.id)
  await deleteHost(tx, host)
  return count
}

/**
 * Throws Fault `fleet.forbidden` unless the role owns the schema. Call it before writing rows of the host, which a
 * host's role may not write either.
 */
async function requireOwner(tx: NumberedTransaction): Promise<void> {
  const [row] = await tx.query<{ may: boolean }>("SELECT has_table_privilege('hosts', 'DELETE') AS may")
  if (row?.may !== true) throw ownerNeeded()
}

async function deleteHost(tx: NumberedTransaction, { id }: HostState): Promise<void> {
  await tx.query('DELETE FROM hosts WHERE id = $1', [id]).catch((error: unknown) => {
    throw ownersAlone(error)
  })
}
