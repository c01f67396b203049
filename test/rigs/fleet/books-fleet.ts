// Hosts of one fleet in one process, as far as their books go. Effects: a database, files of a temporary directory.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BooksHost, type BooksHostOptions, startBooksHost } from '../../../scripts/rigs/fleet/budgets-host.ts'
import { asOwner, connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'

export type BooksFleet = AsyncDisposable & {
  /** Also one that was stopped. */
  readonly host: (name: string, options?: Partial<BooksHostOptions>) => Promise<BooksHost>
  /** The way of all hosts to the database. */
  readonly proxy: DatabaseProxy
  /** Statements of the role that owns the directory, not through the proxy. */
  readonly asOwner: <T>(work: (owner: Postgres) => Promise<T>) => Promise<T>
  /** A connection of that role, which the test closes. */
  readonly owner: () => Promise<Postgres>
  /** Not through the proxy. Text of the result, rows and columns by `|`. */
  readonly sql: (text: string) => Promise<string>
}

export async function openBooksFleet(server: PostgresServer): Promise<BooksFleet> {
  const undo = new AsyncDisposableStack()
  const root = mkdtempSync(join(tmpdir(), 'srt-books-'))
  undo.defer(() => rmSync(root, { recursive: true, force: true }))
  const database = await newFleet(server)
  const proxy = undo.use(await startProxy(server.port))
  const throughProxy = database.replace(`:${server.port}/`, `:${proxy.port}/`)
  return {
    proxy,
    asOwner: work => asOwner(database, work),
    owner: () => connect(server, database),
    sql: text => server.run(text, database.slice(database.lastIndexOf('/') + 1)),
    host: async (name, options = {}) => {
      const directory = join(root, name)
      mkdirSync(directory, { recursive: true })
      return undo.use(await startBooksHost({ directory, database: throughProxy, name, isUnhurried: true, ...options }))
    },
    [Symbol.asyncDispose]: () => undo.disposeAsync(),
  }
}
