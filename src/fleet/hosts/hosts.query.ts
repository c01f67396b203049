// Hosts in the directory: list, join, drain, remove. Effects: statements to PostgreSQL.

import { Fault } from '../../base/fault.ts'
import { fleetSchema } from '../driver.ts'
import { sqlStateOf } from '../failures.ts'
import type { NumberedTransaction, Postgres, Sql } from '../postgres.ts'
import { grantHost, revokeHost } from '../rights.ts'

/** A host as the view host_states has it. */
export type HostState = {
  readonly id: string
  readonly name: string
  readonly role: string
  readonly joinedMs: number
  readonly drainingMs: number | null
  readonly platform: string | null
  /** Instances that it has and can take besides, together. */
  readonly places: number
  /** As the host sent it: of any release. */
  readonly report: Readonly<Record<string, unknown>> | null
  readonly renewedAt: Date | null
  readonly lostAt: Date | null
  readonly silentMs: number | null
  readonly hasLease: boolean
  /** Where it answers other hosts; null if it does not. */
  readonly peerAddress: string | null
  /** By which certificate (PEM); null if it has published none. */
  readonly peerCertificate: string | null
  /** Instances that are not terminated. */
  readonly livingCount: number
  /** Instances that have a VM or will get one. */
  readonly takenCount: number
  /** Builds that wait or run there, or have still their source there. */
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

/** By name. */
export async function listHosts(sql: Sql): Promise<HostState[]> {
  return await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s ORDER BY s.name LIMIT $1`, [hostCountMax])
}

/** Fault: `not_found`. */
export async function hostNamed(sql: Sql, name: string): Promise<HostState> {
  const [found] = await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s WHERE s.name = $1`, [name])
  if (found === undefined) throw new Fault('not_found', `the fleet has no host ${name}`, { param: 'name' })
  return found
}

/** Null if the fleet does not have it. */
export async function hostById(sql: Sql, id: string): Promise<HostState | null> {
  const [found] = await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s WHERE s.id = $1`, [id])
  return found ?? null
}

export type NewHost = {
  readonly id: string
  readonly name: string
  /** Signs in as this role, and no other host does. */
  readonly role: string
  readonly nowMs: number
}

/**
 * Adds a host; needs the role that owns the schema. Fault: `conflict` (another host has the name or the role, or the
 * host is there).
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
const noRight = '42501'

/** A right that is missing is one of the role that owns the schema: any other error stays as it is. */
export function ownersAlone(error: unknown): unknown {
  return sqlStateOf(error) === noRight ? ownerNeeded(error) : error
}

function ownerNeeded(cause?: unknown): Fault {
  const message = 'hosts join, leave and get another role by the role that owns the database alone'
  return new Fault('fleet.forbidden', message, { cause })
}

/**
 * Binds a host to a role, and takes its key for other hosts away: the next one that it publishes is its own. Needs the
 * role that owns the schema. Faults: `not_found`, `conflict` (another host has the role), `fleet.forbidden`.
 */
export async function rebindHost(
  postgres: Pick<Postgres, 'transact' | 'transactPlain'>,
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

/** Takes the rights of a host's role from one that no host signs in as any more. */
export async function takeRights(postgres: Pick<Postgres, 'transactPlain'>, role: string): Promise<void> {
  await postgres.transactPlain(async tx => {
    const unused = `SELECT 1 FROM pg_roles r JOIN pg_namespace n ON n.nspname = $2
      WHERE r.rolname = $1 AND NOT pg_has_role(r.oid, n.nspowner, 'MEMBER')
        AND NOT EXISTS (SELECT 1 FROM hosts WHERE database_role = $1)`
    if ((await tx.query(unused, [role, fleetSchema])).length > 0) await revokeHost(tx, role)
  })
}

/** No effect where it is so already. Fault: `not_found`. */
export async function setDraining(tx: NumberedTransaction, name: string, sinceMs: number | null): Promise<void> {
  const [row] = await tx.query<{ done: boolean }>('SELECT set_draining($1, $2) AS done', [name, sinceMs])
  if (row?.done !== true) throw new Fault('not_found', `the fleet has no host ${name}`, { param: 'name' })
}

/**
 * Takes a host out that has drained and holds nothing; the results of its builds go with it. Faults: `not_found`,
 * `conflict`.
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

/** Fails the instances of a host, in the transaction that gives them up; returns their number. */
export type GiveUp = (tx: NumberedTransaction, hostId: string) => Promise<number>

/**
 * Takes a host out that does not come back, and gives its instances up. Returns their number. Faults: `not_found`,
 * `conflict` (it has a lease: it is there).
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

/** Before rows of the host are written, which a host's role may not either. Fault `fleet.forbidden`. */
async function requireOwner(tx: NumberedTransaction): Promise<void> {
  const [row] = await tx.query<{ may: boolean }>("SELECT has_table_privilege('hosts', 'DELETE') AS may")
  if (row?.may !== true) throw ownerNeeded()
}

async function deleteHost(tx: NumberedTransaction, { id }: HostState): Promise<void> {
  await tx.query('DELETE FROM hosts WHERE id = $1', [id]).catch((error: unknown) => {
    throw ownersAlone(error)
  })
}
