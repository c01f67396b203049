// A PostgreSQL server for the tests of one file. Effects: those of server.ts, before the first test and after the last.

import { afterAll, beforeAll } from 'bun:test'
import { hasPostgres, type PostgresServer, startPostgres } from './server.ts'

const startMs = 120_000

/** At the top of a test file. Without PostgreSQL `use` is not called; the tests skip themselves (`skipUnless`). */
export function startForTests(use: (server: PostgresServer) => void): void {
  let server: PostgresServer | null = null
  beforeAll(async () => {
    if (!hasPostgres) return
    server = await startPostgres()
    use(server)
  }, startMs)
  afterAll(() => server?.[Symbol.asyncDispose]())
}
