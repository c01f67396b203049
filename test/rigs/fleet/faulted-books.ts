// A fleet of host processes whose books are used while hosts, the database and the ways to it fail at random. Effects:
// processes, a database, ports, files of a temporary directory.

import { Database } from 'bun:sqlite'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { type SeedBudgets, startBooksHost } from '../../../scripts/rigs/fleet/budgets-host.ts'
import type { HostAddresses, HostProgramOptions } from '../../../scripts/rigs/fleet/host-program.ts'
import { newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'

type Process = HostAddresses & { readonly child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> }

export type BooksProcess = {
  readonly name: string
  readonly directory: string
  readonly proxy: DatabaseProxy
  process: Process | null
}

const program = join(import.meta.dir, '../../../scripts/rigs/fleet/host-program.ts')
const answerMs = 8_000

export class FaultedBooks implements AsyncDisposable {
  readonly hosts: BooksProcess[] = []
  readonly faults: string[] = []
  /** Ids and amounts of what was acknowledged. */
  readonly acknowledged = new Map<string, number>()
  readonly answers = new Map<number, number>()
  /** How far every host's clock is ahead. */
  aheadMs = 0
  readonly #server: PostgresServer
  readonly #database: string
  readonly #root = mkdtempSync(join(tmpdir(), 'srt-books-'))
  readonly #draw: (count: number) => number

  private constructor(server: PostgresServer, database: string, seed: number) {
    this.#server = server
    this.#database = database
    this.#draw = createDraw(seed)
  }

  static async open(
    server: PostgresServer,
    { hostCount, seed, budgets }: { hostCount: number; seed: number; budgets: SeedBudgets },
  ): Promise<FaultedBooks> {
    const fleet = new FaultedBooks(server, await newFleet(server), seed)
    for (let index = 0; index < hostCount; index += 1) {
      const name = `host-${index}`
      const directory = join(fleet.#root, name)
      mkdirSync(directory)
      fleet.hosts.push({ name, directory, proxy: await startProxy(server.port), process: null })
    }
    const { directory } = fleet.hosts[0] as BooksProcess
    const seeding = await startBooksHost({ directory, database: fleet.#database, name: 'host-0' })
    await seeding.seed(budgets)
    await seeding[Symbol.asyncDispose]()
    await fleet.startAll()
    return fleet
  }

  async startAll(): Promise<void> {
    for (const host of this.hosts) await this.start(host)
  }

  async start(host: BooksProcess): Promise<void> {
    if (host.process !== null) return
    const database = this.#database.replace(`:${this.#server.port}/`, `:${host.proxy.port}/`)
    const options: HostProgramOptions = {
      ...{ directory: host.directory, database, name: host.name, wrongMs: this.aheadMs },
      ...{ sumsEveryMs: 200, hasBudgets: true },
    }
    const child = Bun.spawn([process.execPath, program, JSON.stringify(options)], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: Bun.file(join(host.directory, 'log')) as never,
    })
    const { value } = await child.stdout.getReader().read()
    if (value === undefined) {
      await child.exited
      return
    }
    host.process = { child, ...JSON.parse(Buffer.from(value).toString()) }
  }

  /** One fault, which ends before this resolves, or leaves a host down until the next `startAll`. */
  async fault(): Promise<void> {
    const host = this.hosts[this.#draw(this.hosts.length)] as BooksProcess
    const forMs = 50 + this.#draw(700)
    const hole = async () => {
      host.proxy.set('hole')
      await Bun.sleep(forMs)
      host.proxy.set('open')
    }
    const kinds: readonly (readonly [string, () => Promise<void>])[] = [
      [`kill and start ${host.name}`, async () => this.#kill(host).then(() => this.start(host))],
      [`kill ${host.name}`, () => this.#kill(host)],
      [`pause ${host.name} ${forMs}`, () => this.#pause(host, forMs)],
      [`no way for ${host.name} ${forMs}`, hole],
      [`${host.name} loses a connection before a commit`, async () => host.proxy.set('before-commit')],
      [`${host.name} loses a connection after a commit`, async () => host.proxy.set('after-commit')],
      [`the database is frozen ${forMs}`, () => this.#freeze(forMs)],
      ['the database is killed', () => this.#killDatabase(forMs)],
      ['all hosts start', () => this.startAll()],
    ]
    const [what, act] = kinds[this.#draw(kinds.length)] as (typeof kinds)[number]
    this.faults.push(what)
    await act()
    await Bun.sleep(this.#draw(150))
  }

  async #kill(host: BooksProcess): Promise<void> {
    host.process?.child.kill('SIGKILL')
    await host.process?.child.exited
    host.process = null
  }

  async #pause(host: BooksProcess, forMs: number): Promise<void> {
    host.process?.child.kill('SIGSTOP')
    await Bun.sleep(forMs)
    host.process?.child.kill('SIGCONT')
  }

  async #freeze(forMs: number): Promise<void> {
    this.#server.freeze()
    await Bun.sleep(forMs)
    this.#server.thaw()
  }

  async #killDatabase(forMs: number): Promise<void> {
    await this.#server.stop('kill')
    await Bun.sleep(forMs)
    await this.#server.start()
  }

  /** Clocks of hosts go on by themselves from there. */
  async setAhead(ms: number): Promise<void> {
    this.aheadMs = ms
    for (const { process } of this.hosts) if (process !== null) await this.#get(process, `/clock?wrongMs=${ms}`)
  }

  /** Null if there was no answer, so the outcome is unknown. */
  async spend(host: BooksProcess, key: string, { most, tokens, holdMs }: Spent): Promise<number | null> {
    if (host.process === null) return null
    const answer = await this.#get(host.process, `/spend?key=${key}&most=${most}&tokens=${tokens}&holdMs=${holdMs}`)
    if (answer === null) return null
    this.answers.set(answer.status, (this.answers.get(answer.status) ?? 0) + 1)
    if (answer.status === 200) this.acknowledged.set(String(answer.body.id), tokens)
    return answer.status
  }

  async viewOf({ process }: BooksProcess, month: string): Promise<string | null> {
    const answer = process === null ? null : await this.#get(process, `/view?key=k1&month=${month}`)
    return answer === null ? null : JSON.stringify(answer.body)
  }

  async #get({ booksUrl: url }: Process, path: string): Promise<{ status: number; body: { id?: string } } | null> {
    try {
      const response = await fetch(url + path, { signal: AbortSignal.timeout(answerMs) })
      const text = await response.text()
      return { status: response.status, body: text === '' ? {} : JSON.parse(text) }
    } catch {
      return null
    }
  }

  /** Rows of a host's own ledger by month, and its sums of itself. Read beside the process. */
  booksOf({ directory }: BooksProcess, month: string) {
    const sqlite = new Database(join(directory, 'strongroom.db'), { readonly: true })
    sqlite.run('PRAGMA busy_timeout = 10000')
    try {
      const rows = sqlite
        .query<{ id: string; key_prefix: string; cost_nano_usd: number }, [string]>(
          "SELECT id, key_prefix, cost_nano_usd FROM usage WHERE strftime('%Y-%m', at_ms / 1000, 'unixepoch') = ?",
        )
        .all(month)
      const sums = sqlite
        .query<{ key_prefix: string; host_id: string; requests: number; cost_nano_usd: number }, [string]>(
          'SELECT key_prefix, host_id, requests, cost_nano_usd FROM usage_months WHERE month = ? ORDER BY key_prefix, host_id',
        )
        .all(month)
      return { rows, sums }
    } finally {
      sqlite.close()
    }
  }

  async sql(text: string): Promise<string> {
    return (await this.#server.run(text, new URL(this.#database).pathname.slice(1))).trim()
  }

  logs(): string {
    return this.hosts
      .map(({ name, directory }) => `${name}\n${readFileSync(join(directory, 'log'), 'utf8').slice(-3_000)}`)
      .join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of this.hosts) {
      host.process?.child.kill('SIGCONT')
      await this.#kill(host)
      await host.proxy[Symbol.asyncDispose]()
    }
    rmSync(this.#root, { recursive: true, force: true })
  }
}

type Spent = { readonly most: number; readonly tokens: number; readonly holdMs: number }
