// PostgreSQL with a synchronous standby that takes over, and a clock that jumps. Effects: processes, files of temporary
// directories; ended with the test's own process.

import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../until.ts'
import { giveToServer } from './programs.ts'
import { type PostgresServer, type PostgresSettings, startPostgres } from './server.ts'

const library = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'

export const hasFakeTime = existsSync(library)

const syncMs = 30_000

export class PostgresPair implements AsyncDisposable {
  /** For files of the server's user. */
  readonly directory: string
  #primary: PostgresServer
  #standby: PostgresServer

  private constructor(directory: string, primary: PostgresServer, standby: PostgresServer) {
    this.directory = directory
    this.#primary = primary
    this.#standby = standby
  }

  static async open({ access }: Pick<PostgresSettings, 'access'> = {}): Promise<PostgresPair> {
    const directory = mkdtempSync(join(tmpdir(), 'srt-clock-'))
    // The server runs as another user.
    giveToServer(directory)
    const clock = join(directory, 'clock')
    writeFileSync(clock, '+0', { mode: 0o644 })
    const env = {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: clock,
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    }
    // By a clock that jumps, each would take the other for gone.
    const settings = { wal_sender_timeout: '0', wal_receiver_timeout: '0' }
    const primary = await startPostgres({ env, settings, ...(access === undefined ? {} : { access }) })
    const standby = await standbyOf(primary)
    return new PostgresPair(directory, primary, standby)
  }

  get primary(): PostgresServer {
    return this.#primary
  }

  get standby(): PostgresServer {
    return this.#standby
  }

  /** The clock of both servers; seconds by which it is wrong. */
  setClock(wrongS: number): void {
    writeFileSync(join(this.directory, 'clock'), `${wrongS < 0 ? '' : '+'}${wrongS}`)
  }

  /** The primary is gone for good, the standby takes over, and another one follows it. */
  async failOver(): Promise<void> {
    const gone = this.#primary
    await gone.stop('kill')
    await this.#standby.promote()
    this.#primary = this.#standby
    await gone[Symbol.asyncDispose]()
    this.#standby = await standbyOf(this.#primary)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#standby[Symbol.asyncDispose]()
    await this.#primary[Symbol.asyncDispose]()
    rmSync(this.directory, { recursive: true, force: true })
  }
}

/** From here on no commit is acknowledged that it lacks. */
async function standbyOf(primary: PostgresServer): Promise<PostgresServer> {
  await primary.run("ALTER SYSTEM SET synchronous_standby_names = ''")
  await primary.run('SELECT pg_reload_conf()')
  const standby = await primary.standby()
  await standby.start()
  await primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
  await primary.run('SELECT pg_reload_conf()')
  await until('the standby is synchronous', syncMs, async () => {
    const count = await primary.run("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
    return count.trim() === '1'
  })
  return standby
}
