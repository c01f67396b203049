// Finds a pooler between this host and its fleet's database that spreads a client's transactions over several sessions
// of the server, as PgBouncer does in transaction mode. Effects: two connections to PostgreSQL for a few statements.
//
// With such a pooler LISTEN has no effect, and settings of this host's session apply to sessions of other clients.

import type { Client } from 'pg'
import { messageOf } from '../base/fault.ts'
import { openSingle, POSTGRES_LIMITS, type PostgresTarget, type SingleConnection } from './driver.ts'
import { directoryAway, failureOf, sqlStateOf } from './failures.ts'

export const poolerRemedy =
  "set pool_mode = session for this database in the pooler's configuration, or name the database server's own port in fleet.database"

/** A pooler may have several idle sessions and other clients, so one round can miss it. */
const roundCount = 4

/** Session of the server, different for each one that exists at a time, also on two servers. */
const SESSION = `SELECT pid || ' ' || backend_start AS session FROM pg_stat_activity WHERE pid = pg_backend_pid()`

/**
 * Returns what is wrong with the way to the database; null if each connection has a session of its own. Fault
 * `fleet.unavailable`.
 */
export async function poolerProblem(target: PostgresTarget): Promise<string | null> {
  const connections: SingleConnection[] = []
  try {
    for (let count = 0; count < 2; count += 1) connections.push(await openSingle(target, POSTGRES_LIMITS))
    for (const { connect } of connections) await connect()
    const [idle, busy] = connections.map(({ client }) => client) as [Client, Client]
    for (let round = 0; round < roundCount; round += 1) {
      const own = [await sessionOf(idle), await sessionOf(idle)]
      await busy.query('BEGIN')
      // With one session in the pool, the next statement of the idle connection would wait for this transaction.
      if (own.includes(await sessionOf(busy))) return problem('transaction')
      own.push(await sessionOf(idle))
      if (new Set(own).size > 1) return problem('transaction')
      await busy.query('ROLLBACK')
    }
    return null
  } catch (error) {
    if (messageOf(error).includes('statement pooling mode')) return problem('statement')
    throw sqlStateOf(error) === null ? directoryAway(error) : failureOf(error)
  } finally {
    for (const { destroy } of connections) destroy()
  }
}

async function sessionOf(client: Client): Promise<unknown> {
  const { rows } = await client.query<{ readonly session: string }>(SESSION)
  return rows[0]?.session
}

function problem(mode: 'transaction' | 'statement'): string {
  return `a pooler in ${mode} mode (PgBouncer) is between this host and the database: a host of a fleet needs sessions of its own, with LISTEN, settings and transactions`
}
