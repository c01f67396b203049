// Connections to PostgreSQL with the driver `pg`, with timeouts on both sides. Effects: sockets. The driver is loaded
// on first use, so hosts without a fleet do not load it.

import { EventEmitter } from 'node:events'
import { Socket } from 'node:net'
import type { Client, ClientBase, ClientConfig, PoolClient, QueryConfig } from 'pg'
import { Fault } from '../base/fault.ts'
import type { DatabaseAddress } from '../config/fleet/database-url.ts'

export type PostgresTarget = Omit<DatabaseAddress, 'password'> & {
  /** A function is called for each new connection, so that a changed password needs no restart. */
  readonly password: string | null | (() => string | null)
  /**
   * Certificates of the only authority that may sign the server's; null for no TLS, with a database on this machine.
   */
  readonly caPem: string | null
  /** Identifies this host in pg_stat_activity. */
  readonly applicationName: string
}

export type PostgresLimits = {
  readonly connectMs: number
  /** Timeout of a statement on the server. The client waits slightly longer, then closes the connection. */
  readonly statementMs: number
  /** Timeout of waiting for another transaction's lock. */
  readonly lockMs: number
  /** Timeout of a whole transaction, on the client. */
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

/** Schema with the tables of a fleet. */
export const fleetSchema = 'strongroom'

/** How much longer the client waits than the server, so that a working server always responds in time. */
export const answerSlackMs = 1_000

/**
 * How long an idle connection is kept open. The pool hands out the one that was used last, so a host without a burst of
 * requests uses one or two, and a server with 100 connections serves 30 hosts.
 */
const idleMs = 10_000
const keepAliveMs = 10_000

export type Connections = {
  readonly take: () => Promise<PoolClient>
  /** Returns a connection to the pool; a broken one is destroyed. */
  readonly giveBack: (client: PoolClient, isBroken: boolean) => void
  readonly waitingCount: () => number
  /** Closes all connections, those in use after a second. */
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
    // Without its socket, the pool would wait for the end of a connection that got no response.
    onConnect: client =>
      setUp(client, limits).catch((error: unknown) => {
        destroy(client)
        throw error
      }),
  })
  // The server closed an idle connection, which the pool removes. Without a listener the process would exit.
  pool.on('error', () => {})
  // The server closed a connection in use; its statement fails as well.
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
  readonly client: Client
  /** Connects. Until then nothing is sent. */
  readonly connect: () => Promise<void>
  /** Closes the connection in any state. */
  readonly destroy: () => void
}

/** Opens a connection outside of the pool. */
export async function openSingle(target: PostgresTarget, limits: PostgresLimits): Promise<SingleConnection> {
  const { TrackedClient, destroy } = await trackedClients()
  const client = new TrackedClient(await settingsOf(target, limits))
  client.on('error', () => {})
  const connect = async () => {
    await client.connect()
    await setUp(client, limits)
  }
  return { client, connect, destroy: () => destroy(client) }
}

/**
 * The driver only closes a connection gracefully: if the server does not respond, its socket would remain for hours.
 */
async function trackedClients() {
  const { default: pg } = await import('pg')
  const open = new Map<object, Socket>()
  class TrackedClient extends pg.Client {
    constructor(config: ClientConfig = {}) {
      const socket = new Socket()
      // The pool makes the password non-enumerable.
      super({ ...config, password: config.password, stream: () => socket })
      open.set(this, socket)
      socket.once('close', () => open.delete(this))
    }

    // The driver calls these methods if a server requests the password, or an MD5 digest that is as good as the
    // password. TLS does not prove that the server may have it; SCRAM proves that both sides know it.
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
    // A function, because without a password the driver would look for one in ~/.pgpass.
    password: () => (typeof password === 'function' ? password() : password) ?? '',
    ssl: caPem === null ? false : { ca: caPem, rejectUnauthorized: true, minVersion: 'TLSv1.2' },
    application_name: applicationName,
    connectionTimeoutMillis: limits.connectMs,
    query_timeout: limits.statementMs + answerSlackMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  }
}

/** Sets up a new session by a statement: PgBouncer refuses a connection that names settings at its start. */
async function setUp(client: ClientBase, { connectMs, ...limits }: PostgresLimits): Promise<void> {
  const text = `SET search_path = ${fleetSchema}, pg_temp; SET jit = off;
    SET statement_timeout = ${limits.statementMs}; SET lock_timeout = ${limits.lockMs};
    SET idle_in_transaction_session_timeout = ${limits.transactionMs}`
  const statement: QueryConfig & { readonly query_timeout: number } = { text, query_timeout: connectMs }
  await client.query(statement)
}

/** Converts a number. Counters, bytes and times all stay far below 2^53. */
function exactNumber(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new Fault('internal', `the number ${text} of the database is too large`)
  return value
}
