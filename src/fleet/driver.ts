// Connections to PostgreSQL by the driver `pg`, each bounded in time on both sides. Effects: sockets. The driver is
// loaded at the first use: hosts without a fleet do not pay for it.

import { EventEmitter } from 'node:events'
import { Socket } from 'node:net'
import type { Client, ClientConfig, PoolClient } from 'pg'
import { Fault } from '../base/fault.ts'
import type { DatabaseAddress } from '../config/fleet/database-url.ts'

export type PostgresTarget = DatabaseAddress & {
  /**
   * Certificates of the only authority that may sign the server's; null for no TLS, with a database on this machine.
   */
  readonly caPem: string | null
  /** Shown in pg_stat_activity: which host this is. */
  readonly applicationName: string
}

export type PostgresLimits = {
  readonly connectMs: number
  /** For a statement, at the server. The client waits a little longer, then ends the connection. */
  readonly statementMs: number
  /** For a lock that another transaction holds. */
  readonly lockMs: number
  /** For a whole transaction, at the client. */
  readonly transactionMs: number
  readonly connectionCountMax: number
  /** Requests that wait for a connection. */
  readonly waitingCountMax: number
}

export const POSTGRES_LIMITS: PostgresLimits = {
  connectMs: 3_000,
  statementMs: 4_000,
  lockMs: 3_000,
  transactionMs: 8_000,
  /** No share: each is used for one transaction, at most `transactionMs`. */
  connectionCountMax: 8,
  /** No share: a wait ends after `connectMs`, and requests of clients are limited before. */
  waitingCountMax: 512,
}

/** Where the tables of a fleet are. */
export const fleetSchema = 'strongroom'

/** How much longer than the server the client waits: a server that answers at all answers by then. */
export const answerSlackMs = 1_000

/** Kept open without use for so long. */
const idleMs = 60_000
const keepAliveMs = 10_000

export type Connections = {
  readonly take: () => Promise<PoolClient>
  /** Back to the pool; a connection that failed is destroyed. */
  readonly giveBack: (client: PoolClient, isBroken: boolean) => void
  readonly waitingCount: () => number
  /** Ends them all, also those in use after a second. */
  readonly close: () => Promise<void>
}

export async function openConnections(target: PostgresTarget, limits: PostgresLimits): Promise<Connections> {
  const { TrackedClient, open, destroy } = await trackedClients()
  const { default: pg } = await import('pg')
  const pool = new pg.Pool({
    ...(await settingsOf(target, limits)),
    Client: TrackedClient,
    max: limits.connectionCountMax,
    idleTimeoutMillis: idleMs,
    allowExitOnIdle: true,
  })
  // An idle connection that the server ended; the pool drops it. Without a listener the process would end.
  pool.on('error', () => {})
  // One in use; its statement fails as well.
  pool.on('connect', client => client.on('error', () => {}))
  return {
    take: () => pool.connect(),
    giveBack: (client, isBroken) => {
      client.release(isBroken)
      if (isBroken) destroy(client)
    },
    waitingCount: () => pool.waitingCount,
    close: async () => {
      await Promise.race([pool.end(), Bun.sleep(answerSlackMs)])
      for (const client of open.keys()) destroy(client)
    },
  }
}

export type SingleConnection = {
  /** Not yet connected. */
  readonly client: Client
  /** Ends it, whatever its state. */
  readonly destroy: () => void
}

/** A connection outside of the pool. */
export async function openSingle(target: PostgresTarget, limits: PostgresLimits): Promise<SingleConnection> {
  const { TrackedClient, destroy } = await trackedClients()
  const client = new TrackedClient(await settingsOf(target, limits))
  client.on('error', () => {})
  return { client, destroy: () => destroy(client) }
}

/** The driver ends a connection politely only: with a server that does not answer, its socket would stay for hours. */
async function trackedClients() {
  const { default: pg } = await import('pg')
  const open = new Map<object, Socket>()
  class TrackedClient extends pg.Client {
    constructor(config: ClientConfig = {}) {
      const socket = new Socket()
      // The pool hides the password from enumeration.
      super({ ...config, password: config.password, stream: () => socket })
      open.set(this, socket)
      socket.once('close', () => open.delete(this))
    }

    // By these names the driver answers a server that asks for the password, or for an MD5 digest that
    // serves as well as the password. TLS does not say that the server is one that may have it: SCRAM
    // proves that both know it.
    _handleAuthCleartextPassword(): void {
      this.#refuse('in clear text')
    }

    _handleAuthMD5Password(): void {
      this.#refuse('as an MD5 digest')
    }

    #refuse(how: string): void {
      const message = `the database requests the password ${how}, and this host proves it by SCRAM alone`
      const driver: unknown = Reflect.get(this, 'connection')
      if (driver instanceof EventEmitter) driver.emit('error', new Fault('fleet.password', message))
    }
  }
  return { TrackedClient, open, destroy: (client: object) => open.get(client)?.destroy() }
}

async function settingsOf(target: PostgresTarget, limits: PostgresLimits): Promise<ClientConfig> {
  const { default: pg } = await import('pg')
  const { host, port, user, database, password, caPem, applicationName } = target
  const types = new pg.TypeOverrides()
  types.setTypeParser(pg.types.builtins.INT8, exactNumber)
  return {
    ...{ host, port, user, database, types },
    // A function: without a password the driver would look for one in ~/.pgpass.
    password: () => password ?? '',
    ssl: caPem === null ? false : { ca: caPem, rejectUnauthorized: true, minVersion: 'TLSv1.2' },
    application_name: applicationName,
    options: `-c search_path=${fleetSchema},pg_temp -c jit=off`,
    connectionTimeoutMillis: limits.connectMs,
    statement_timeout: limits.statementMs,
    lock_timeout: limits.lockMs,
    idle_in_transaction_session_timeout: limits.transactionMs,
    query_timeout: limits.statementMs + answerSlackMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  }
}

/** Counters, bytes and times all stay far below 2^53. */
function exactNumber(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new Fault('internal', `the number ${text} of the database is too large`)
  return value
}
