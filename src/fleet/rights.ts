// The least rights of a host's database role. Effects: statements to PostgreSQL, by the role that owns the schema.

import { fleetSchema } from './driver.ts'
import type { Sql } from './postgres.ts'

/** Written by functions alone. All other tables are the directory's, which every host may change. */
const OWN_TABLES = [
  ...['fleet', 'changes', 'trimmed', 'hosts', 'clock', 'leases', 'peers', 'migrations'],
  ...['allowances', 'allowance_entries', 'share_members', 'shares'],
]

const FUNCTIONS = [
  ...['begin_change', 'timeline', 'renew_lease', 'mark_lost', 'join_host', 'trim_changes', 'publish_peer'],
  ...['lease_allowance', 'return_allowance', 'enter_allowances', 'renew_shares', 'end_shares'],
]

/** Roles that hosts sign in as; the owner of the schema needs no grant. */
export async function hostRoles(sql: Sql): Promise<string[]> {
  const rows = await sql.query<{ role: string }>(
    'SELECT DISTINCT database_role AS role FROM hosts WHERE database_role <> current_user ORDER BY 1',
  )
  return rows.map(({ role }) => role)
}

/** Gives a role what a host needs. Again after each step of the schema. Repeating it changes nothing. */
export async function grantHost(tx: Sql, role: string): Promise<void> {
  const tables = await tx.query<{ name: string }>(
    'SELECT tablename AS name FROM pg_tables WHERE schemaname = $1 AND NOT tablename = ANY($2) ORDER BY 1',
    [fleetSchema, OWN_TABLES],
  )
  const shared = tables.map(({ name }) => name).join(', ')
  const functions = await tx.query<{ signature: string }>(
    `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = $1 AND p.proname = ANY($2) ORDER BY 1`,
    [fleetSchema, FUNCTIONS],
  )
  const grants = [
    `USAGE ON SCHEMA ${fleetSchema}`,
    `SELECT ON ALL TABLES IN SCHEMA ${fleetSchema}`,
    'UPDATE (draining_ms), DELETE ON hosts',
    ...(shared === '' ? [] : [`INSERT, UPDATE, DELETE ON ${shared}`]),
    ...functions.map(({ signature }) => `EXECUTE ON FUNCTION ${signature}`),
  ]
  const [quoted] = await tx.query<{ name: string }>('SELECT quote_ident($1) AS name', [role])
  for (const grant of grants) await tx.query(`GRANT ${grant} TO ${quoted?.name}`)
}
