// Hosts in the directory: list, join, drain, remove. Effects: statements to PostgreSQL.

import { Fault } from '../../base/fault.ts'
import { sqlStateOf } from '../failures.ts'
import type { NumberedTransaction, Sql } from '../postgres.ts'

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
  /** Where it answers other hosts; null: it does not. */
  readonly peerAddress: string | null
  /** By which certificate (PEM); null: it has published none. */
  readonly peerCertificate: string | null
  /** Instances that are not terminated. */
  readonly livingCount: number
  /** Instances that have a VM or will get one. */
  readonly takenCount: number
  /** Builds that wait or run there, or have still their source there. */
  readonly buildCount: number
}

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

/** Null: the fleet does not have it. */
export async function hostById(sql: Sql, id: string): Promise<HostState | null> {
  const [found] = await sql.query<HostState>(`SELECT ${COLUMNS} FROM host_states s WHERE s.id = $1`, [id])
  return found ?? null
}

export type NewHost = { readonly id: string; readonly name: string; readonly nowMs: number }

/** Adds this host, which signs in as it does now. Fault: `conflict` (another host has the name, or it is there). */
export async function joinHost(tx: NumberedTransaction, { id, name, nowMs }: NewHost): Promise<void> {
  try {
    await tx.query('SELECT join_host($1, $2, $3)', [id, name, nowMs])
  } catch (error) {
    if (sqlStateOf(error) !== uniqueViolation) throw error
    throw new Fault('conflict', `the fleet has a host ${name} or this host already`, { cause: error })
  }
}

const uniqueViolation = '23505'

/** No effect where it is so already. Fault: `not_found`. */
export async function setDraining(tx: NumberedTransaction, name: string, sinceMs: number | null): Promise<void> {
  const rows = await tx.query(
    'UPDATE hosts SET draining_ms = CASE WHEN $2::bigint IS NULL THEN NULL ELSE coalesce(draining_ms, $2) END WHERE name = $1 RETURNING id',
    [name, sinceMs],
  )
  if (rows.length === 0) throw new Fault('not_found', `the fleet has no host ${name}`, { param: 'name' })
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
  const count = await giveUp(tx, host.id)
  await deleteHost(tx, host)
  return count
}

async function deleteHost(tx: NumberedTransaction, { id }: HostState): Promise<void> {
  await tx.query('DELETE FROM hosts WHERE id = $1', [id])
}
