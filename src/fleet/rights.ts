// The minimal rights of a host's database role. Effects: statements to PostgreSQL, by the role that owns the schema.

import { present } from '../base/assert.ts'
import { fleetSchema } from './driver.ts'
import type { Sql } from './postgres.ts'

/**
 * Tables that a host's role may write with its own statements; triggers judge each row (migrations/0011-guards). All
 * other tables are only written by functions.
 */
const WRITABLE = {
  organizations: 'INSERT, UPDATE',
  keys: 'INSERT, UPDATE',
  gateway_keys: 'INSERT, UPDATE, DELETE',
  instances: 'INSERT, UPDATE, DELETE',
  instance_changes: 'INSERT, DELETE',
  instance_attestations: 'INSERT, UPDATE, DELETE',
  instance_addresses: 'INSERT, UPDATE, DELETE',
  idempotency: 'INSERT, UPDATE, DELETE',
  usage_months: 'INSERT, UPDATE, DELETE',
  usage_days: 'INSERT, UPDATE, DELETE',
  builds: 'INSERT, UPDATE, DELETE',
  build_nonces: 'INSERT, DELETE',
  build_reservations: 'INSERT, DELETE',
  outboxes: 'INSERT, UPDATE',
} as const

const FUNCTIONS = [
  ...['begin_change', 'timeline', 'renew_lease', 'mark_lost', 'set_draining', 'publish_peer'],
  'end_stuck_changes',
  'report_samples',
  // Called by triggers in the role of the statement.
  'is_judged',
  ...['lease_allowance', 'return_allowance', 'enter_allowances', 'renew_shares', 'end_shares'],
]

/** Returns the roles with which hosts sign in. The owner of the schema needs no grant. */
export async function hostRoles(sql: Sql): Promise<string[]> {
  const rows = await sql.query<{ role: string }>(
    'SELECT DISTINCT database_role AS role FROM hosts WHERE database_role <> current_user ORDER BY 1',
  )
  return rows.map(({ role }) => role)
}

/** Grants a role exactly what a host needs. Call it again after each step of the schema. Idempotent. */
export async function grantHost(tx: Sql, role: string): Promise<void> {
  const functions = await tx.query<{ signature: string }>(
    `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = $1 AND p.proname = ANY($2) ORDER BY 1`,
    [fleetSchema, FUNCTIONS],
  )
  const grants = [
    `USAGE ON SCHEMA ${fleetSchema}`,
    `SELECT ON ALL TABLES IN SCHEMA ${fleetSchema}`,
    ...Object.entries(WRITABLE).map(([table, rights]) => `${rights} ON ${table}`),
    ...functions.map(({ signature }) => `EXECUTE ON FUNCTION ${signature}`),
  ]
  // Two concurrent calls would write the same lists of rights.
  await tx.query('LOCK TABLE migrations IN SHARE ROW EXCLUSIVE MODE')
  await revokeHost(tx, role)
  const name = await quoted(tx, role)
  for (const grant of grants) await tx.query(`GRANT ${grant} TO ${name}`)
  await closeDatabase(tx, name)
}

/**
 * Revokes the right to create objects in the fleet's database, including temporary tables, which PostgreSQL grants to
 * every role. The guards hold without this. No effect if another role owns the database.
 */
async function closeDatabase(tx: Sql, name: string): Promise<void> {
  const [database] = await tx.query<{ name: string; has_public: boolean }>(
    `SELECT quote_ident(datname) AS name, to_regnamespace('public') IS NOT NULL AS has_public
     FROM pg_database WHERE datname = current_database() AND pg_has_role(datdba, 'USAGE')`,
  )
  if (database === undefined) return
  await tx.query(`REVOKE TEMPORARY, CREATE ON DATABASE ${database.name} FROM PUBLIC, ${name}`)
  if (database.has_public) await tx.query(`REVOKE CREATE ON SCHEMA public FROM PUBLIC, ${name}`)
}

/** Revokes all rights of a role that no host uses any more. */
export async function revokeHost(tx: Sql, role: string): Promise<void> {
  const name = await quoted(tx, role)
  for (const all of ['TABLES', 'SEQUENCES', 'FUNCTIONS']) {
    await tx.query(`REVOKE ALL ON ALL ${all} IN SCHEMA ${fleetSchema} FROM ${name}`)
  }
  await tx.query(`REVOKE ALL ON SCHEMA ${fleetSchema} FROM ${name}`)
}

async function quoted(tx: Sql, role: string): Promise<string> {
  const [found] = await tx.query<{ name: string }>('SELECT quote_ident($1) AS name', [role])
  return present(found, 'a function has one row').name
}
