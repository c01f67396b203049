// Rows of several hosts in a fleet's directory, and what comes of a statement by the role of one of them. Effects:
// statements to PostgreSQL.

import { admitHost, asOwner, connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { messageOf } from '../../../src/base/fault.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'

const dayMs = 86_400_000

/** How a refusal by rights ends. */
export const denied = 'denied'

export const instance = (id: string, host: string, more = "'present', 'provisioning'") =>
  `INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key,
     inference_mode, inference_model, created_at_ms, changed_at_ms)
   VALUES ('${id}', '${host}', 'o', '${id}', '${id}', ${more}, 'a', 'k', 'm', 'm', 5, 5)`
export const build = (id: string, host: string, state: string) =>
  `INSERT INTO builds (id, host_id, organization_id, state, nonce, source_kind, reproduce, network, disk_bytes, created_at_ms)
   VALUES ('${id}', '${host}', 'o', '${state}', '${id}', 'archive', 0, 'unused', 0, 5)`
export const gatewayKey = (prefix: string, of: string) =>
  `INSERT INTO gateway_keys (prefix, organization_id, instance_id, secret_sha256, created_at_ms)
   VALUES ('${prefix}', 'o', ${of}, sha256('x'), 5)`
const today = new Date().toISOString().slice(0, 10)
export const month = (host: string, at = today.slice(0, 7)) =>
  `INSERT INTO usage_months VALUES ('o', '${at}', 'k', '${host}', 9, 9, 9, 9)`
export const day = (host: string, at = today) =>
  `INSERT INTO usage_days VALUES ('o', 'k', '${at}', 'm', '${host}', 9, 9, 9, 9, 9)`
export const key = (prefix: string) => `INSERT INTO keys VALUES ('${prefix}', 'o', sha256('x'), 'write', 5)`

/** `a` has rows of each kind; so has `b`, and a host `lost` that was given up. */
export const FILLED = [
  "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o', 'acme', 'active', 1)",
  "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('q', 'initech', 'active', 1)",
  key('mine0000'),
  gatewayKey('gw000000', 'NULL'),
  `INSERT INTO idempotency VALUES ('o', 'new', sha256('x'), 202, '{}', ${Date.now()})`,
  `INSERT INTO idempotency VALUES ('o', 'old', sha256('x'), 202, '{}', ${Date.now() - 2 * dayMs})`,
  ...['a', 'b', 'lost'].flatMap(host => [
    instance(`${host}-new`, host),
    instance(`${host}-ready`, host, "'present', 'ready'"),
    instance(`${host}-kept`, host, "'absent', 'terminated'"),
    instance(`${host}-old`, host, "'absent', 'terminated'"),
    `INSERT INTO instance_changes VALUES ('${host}-ready', 'provisioning', 5)`,
    `INSERT INTO instance_attestations VALUES ('${host}-ready', 'n', 's', 5, '{}')`,
    `INSERT INTO instance_addresses VALUES ('${host}-ready', '10.0.0.1', NULL)`,
    // Long past its time.
    `INSERT INTO instance_changes VALUES ('${host}-old', 'provisioning', 5)`,
    `INSERT INTO instance_attestations VALUES ('${host}-old', 'n', 's', 5, '{}')`,
    `INSERT INTO instance_addresses VALUES ('${host}-old', '10.0.0.1', NULL)`,
    gatewayKey(`gw-old-${host}`, `'${host}-old'`),
    gatewayKey(`gw-${host}`, `'${host}-ready'`),
    month(host),
    day(host),
    build(`${host}-queued`, host, 'queued'),
    build(`${host}-running`, host, 'running'),
    build(`${host}-ok`, host, 'ok'),
    `INSERT INTO build_nonces VALUES ('o', '${host}', '${host}-running')`,
    `INSERT INTO build_reservations VALUES ('vm-${host}', '${host}', 'o', 5)`,
    `INSERT INTO outboxes VALUES ('${host}', 7)`,
  ]),
  `UPDATE instances SET terminated_at_ms = ${Date.now() - 20 * dayMs} WHERE id LIKE '%-kept'`,
  `UPDATE instances SET terminated_at_ms = ${Date.now() - 40 * dayMs} WHERE id LIKE '%-old'`,
  ...['a', 'b', 'gone'].flatMap(host => [month(host, '2020-01'), day(host, '2020-01-01')]),
  month('gone'),
  "UPDATE leases SET lost_at = now() WHERE host_id = 'lost'",
]

class TakenBack extends Error {}

/** The lines on record, else `done` or the rows; or the refusal. Nothing of it stays. */
export async function outcomeOf(b: Postgres, statement: string): Promise<string> {
  const [{ seq } = { seq: 0 }] = await b.query<{ seq: number }>('SELECT coalesce(max(seq), 0) AS seq FROM host_actions')
  let outcome = ''
  try {
    await b.transact(async tx => {
      const rows = await tx.query(statement)
      const noted = await tx.query<{ line: string }>(
        `SELECT concat_ws(' ', action, subject, 'by', host_id, nullif(detail, '{}')) AS line
         FROM host_actions WHERE seq > $1 ORDER BY seq`,
        [seq],
      )
      outcome = noted.map(({ line }) => line).join(', ') || (rows.length === 0 ? 'done' : JSON.stringify(rows))
      throw new TakenBack()
    })
  } catch (error) {
    if (error instanceof TakenBack) return outcome
    const message = messageOf(error)
    return /^(permission denied|must be owner)/.test(message) ? denied : message
  }
  return outcome
}

/** A directory with hosts that renewed once, and the rows of FILLED. Returns the address for its owner. */
export async function filledFleet(server: PostgresServer): Promise<string> {
  const database = await newFleet(server)
  for (const id of ['a', 'b', 'c', 'lost']) {
    const host = await connect(server, await admitHost(database, { id, name: id }))
    await host.query("SELECT renew_lease($1, 60000, 'tcg', 5, '{}')", [id])
    await host.close()
  }
  await asOwner(database, owner =>
    owner.transact(async tx => {
      for (const statement of FILLED) await tx.query(statement)
    }),
  )
  return database
}
