// A fleet of host processes whose hosts, database, clocks and ways to it and to one another can be made to fail.
// Effects: processes, a database, ports, files of a temporary directory.

import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { joinFleet, type MemberParts } from '../../../src/cli/fleet/members.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import type { PostgresTarget } from '../../../src/fleet/driver.ts'
import { databaseFile } from '../../../src/host/state-files.ts'
import { openStore } from '../../../src/store/db.ts'
import type { HostAddresses, HostProgramOptions, HostStatus } from '../../rigs/fleet/host-program.ts'
import { admitHost, newFleet, roleOf, urlOfHost } from '../../rigs/postgres/fleet.ts'
import type { PostgresPair } from '../../rigs/postgres/pair.ts'
import { type DatabaseProxy, startProxy } from '../../rigs/postgres/proxy.ts'
import { until } from '../../rigs/until.ts'
import { Expected } from './expected.ts'

export type HostProcess = HostAddresses & { readonly child: Bun.Subprocess<'pipe', 'pipe', number> }

/** Ends a fault. */
export type Heal = () => Promise<void> | void

export type FaultedHost = {
  readonly name: string
  readonly id: string
  readonly directory: string
  readonly proxy: DatabaseProxy
  /** Its ways to the others, by their names. */
  readonly peerWays: ReadonlyMap<string, DatabaseProxy>
  process: HostProcess | null
  /** Monotonic; null while it runs. */
  downSinceMs: number | null
  /** How often its records, or those of the directory, have gone back to an earlier state. */
  history: number
}

export type FleetBudgets = {
  /** In nano-dollars a month. */
  readonly k1: number
  readonly organization: number
}

export type FaultedFleetOptions = {
  readonly hostCount: number
  readonly budgets: FleetBudgets
  /** Gets a line for what a fault did not do. */
  readonly note: (line: string) => void
}

const program = join(import.meta.dir, '../../rigs/fleet/host-program.ts')
/** One in so many instances gives evidence. */
const attestedOneOf = 8
const bootMs = 50
const nowhere = 1
/** As long as a host may need for its turn on a machine that is busy. */
const answerMs = 60_000
/** Instances that a host takes at a time; its pool has more addresses, as some rest. */
const placesEach = 500
/** A start may fail while the standby of the database finds its way back. */
const allStartMs = 120_000
/** Less than the daemon's, so that hosts settle soon after the last fault. */
const intervals = { sumsEveryMs: 500, checkEveryMs: 2_000, renewEveryMs: 500, budgetsIdleMs: 500 }
const settings = { instancesPerOrganizationMax: 100_000 }

export class FaultedFleet implements AsyncDisposable {
  readonly hosts: FaultedHost[] = []
  readonly databases: PostgresPair
  readonly expected = new Expected()
  /** Ways to the database of copies of hosts. */
  readonly copyWays = new Set<DatabaseProxy>()
  readonly note: (line: string) => void
  readonly directory = mkdtempSync(join(tmpdir(), 'srt-faults-'))
  readonly #database: string
  #key = ''

  private constructor(databases: PostgresPair, database: string, note: (line: string) => void) {
    this.databases = databases
    this.note = note
    this.#database = database
  }

  static async open(databases: PostgresPair, { hostCount, budgets, note }: FaultedFleetOptions): Promise<FaultedFleet> {
    const url = await newFleet(databases.primary)
    const fleet = new FaultedFleet(databases, new URL(url).pathname.slice(1), note)
    const names = Array.from({ length: hostCount }, (_, index) => `host-${index}`)
    for (const name of names) {
      const directory = join(fleet.directory, name)
      mkdirSync(directory)
      const store = openStore(join(directory, databaseFile))
      const { hostId: id } = store
      store.close()
      await admitHost(url, { id, name })
      const proxy = await startProxy(databases.primary.port)
      const peerWays = new Map<string, DatabaseProxy>()
      for (const other of names) if (other !== name) peerWays.set(other, await startProxy(nowhere))
      const host = { name, id, directory, proxy, peerWays, process: null, downSinceMs: 0, history: 0 }
      fleet.hosts.push(host)
      fleet.writePassword(host, await fleet.newPassword(host))
    }
    await fleet.startAll()
    fleet.#key = await fleet.#newKey(budgets)
    return fleet
  }

  /** The one organization's key. */
  get key(): string {
    return this.#key
  }

  /** Address of the directory for the role that owns it. */
  ownerUrl(): string {
    return this.databases.primary.url({ database: this.#database })
  }

  /** Its role gets another password, which the host does not have yet. */
  async newPassword({ id }: FaultedHost): Promise<string> {
    const password = crypto.randomUUID()
    await this.sql(`ALTER ROLE ${roleOf(id)} PASSWORD '${password}'`)
    return password
  }

  writePassword({ directory }: FaultedHost, password: string): void {
    writeFileSync(passwordFile(directory), password)
  }

  async start(host: FaultedHost): Promise<void> {
    if (host.process !== null) return
    const pool = `10.${this.hosts.indexOf(host)}.0.0/22`
    const ways = Object.fromEntries([...host.peerWays].map(([name, { port }]) => [name, port]))
    host.process = await this.spawn(host, { directory: host.directory, port: host.proxy.port, pool, ways })
    if (host.process === null) return
    host.downSinceMs = null
    for (const { peerWays } of this.hosts) peerWays.get(host.name)?.lead(host.process.peerPort)
  }

  /** Starts a process with the identity that the directory's files have. Null if it ends before it serves. */
  async spawn(
    { name }: Pick<FaultedHost, 'name'>,
    {
      directory,
      port,
      pool,
      ways,
    }: { directory: string; port: number; pool: string; ways: Readonly<Record<string, number>> },
  ): Promise<HostProcess | null> {
    const options: HostProgramOptions = {
      ...{ directory, name, bootMs, settings, pool, ...intervals },
      database: this.ownerUrl().replace(/:\d+\//, `:${port}/`),
      passwordFile: passwordFile(directory),
      places: placesEach,
      isPatient: true,
      isJoined: true,
      isAttested: attestedOneOf,
      peerWays: ways,
      hasBudgets: true,
    }
    const log = openSync(logFile(directory), 'a')
    const child = Bun.spawn([process.execPath, program, JSON.stringify(options)], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: log,
    })
    closeSync(log)
    const { value } = await child.stdout.getReader().read()
    if (value === undefined) {
      await child.exited
      return null
    }
    const addresses: HostAddresses = JSON.parse(Buffer.from(value).toString())
    return { child, ...addresses }
  }

  async startAll(): Promise<void> {
    await Promise.all(this.hosts.map(host => this.start(host)))
  }

  async kill(host: FaultedHost): Promise<void> {
    host.process?.child.kill('SIGKILL')
    await host.process?.child.exited
    host.process = null
    host.downSinceMs ??= performance.now()
  }

  /** New connections find the server that took over, as a name or an address that follows it has them do. */
  async failOver(): Promise<void> {
    await this.databases.failOver()
    const ways = [...this.hosts.map(({ proxy }) => proxy), ...this.copyWays]
    for (const way of ways) way.lead(this.databases.primary.port)
  }

  /** A host that starts has a clock that is right. */
  async setClock({ process: at }: FaultedHost, wrongMs: number): Promise<void> {
    if (at === null || at.child.exitCode !== null) return
    await fetch(`${at.booksUrl}/clock?wrongMs=${wrongMs}`, { signal: AbortSignal.timeout(answerMs) })
  }

  /** Packets between the host and another one are dropped, either way. Returns what ends that. */
  part(host: FaultedHost, other: FaultedHost): () => void {
    const ways = [
      [host, other],
      [other, host],
    ] as const
    for (const [from, to] of ways) from.peerWays.get(to.name)?.set('hole')
    return () => {
      for (const [from, to] of ways) {
        const way = from.peerWays.get(to.name)
        way?.set('open')
        // Dropped bytes are not sent again: the connections end.
        way?.lead(to.process?.peerPort ?? nowhere)
      }
    }
  }

  /** Its answer to a client that reads. */
  async answerOf({ process: at }: Pick<FaultedHost, 'process'>): Promise<{ status: number; text: string }> {
    const headers = { Authorization: `Bearer ${this.key}` }
    const response = await fetch(`${at?.url}/v1/instances`, { headers, signal: AbortSignal.timeout(answerMs) })
    return { status: response.status, text: await response.text() }
  }

  /** As `strongroom fleet join --as` of the owner. */
  async join(host: FaultedHost): Promise<void> {
    await joinFleet({ ...this.membership(host), owner: this.#target(this.ownerUrl()) })
  }

  /** A host's configuration, as the operator's commands get it. */
  membership({ id, name, directory }: FaultedHost): MemberParts {
    const target = this.#target(urlOfHost(this.ownerUrl(), id))
    const password = () => readFileSync(passwordFile(directory), 'utf8')
    return { target: { ...target, password }, owner: null, name, stateDir: directory, clock: systemClock }
  }

  #target(url: string): PostgresTarget {
    const parsed = parseDatabaseUrl(url)
    if (!parsed.ok) throw new Error(parsed.problem)
    return { ...parsed.address, caPem: null, applicationName: 'operator' }
  }

  /** Null if it does not run. */
  async statusOf({ process: at }: Pick<FaultedHost, 'process'>): Promise<HostStatus | null> {
    if (at === null) return null
    const response = await fetch(`${at.booksUrl}/status`, { signal: AbortSignal.timeout(answerMs) })
    return (await response.json()) as HostStatus
  }

  /** Every way is open and every host runs and is one of the fleet. */
  async healAll(): Promise<void> {
    for (const { proxy } of this.hosts) {
      proxy.set('open')
      // Dropped bytes are not sent again: the connections end.
      proxy.lead(this.databases.primary.port)
    }
    await until('all hosts run, with their leases', allStartMs, async () => {
      await this.startAll()
      const statuses = await Promise.all(this.hosts.map(host => this.statusOf(host)))
      return statuses.every(status => status?.hasLease === true)
    })
  }

  async sql(text: string): Promise<string> {
    return (await this.databases.primary.run(text, this.#database)).trim()
  }

  /** Lines of logs: copies that differed from the directory at one version. */
  wrongCopies(): string[] {
    return this.hosts.flatMap(({ directory }) =>
      readFileSync(logFile(directory), 'utf8')
        .split('\n')
        .filter(line => line.includes('the copy of the directory differs from it')),
    )
  }

  logs(): string {
    return this.hosts
      .map(({ directory }) => readFileSync(logFile(directory), 'utf8').split('\n').slice(-20).join('\n'))
      .join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of this.hosts) {
      await this.kill(host)
      for (const proxy of [host.proxy, ...host.peerWays.values()]) await proxy[Symbol.asyncDispose]()
    }
    rmSync(this.directory, { recursive: true, force: true })
  }

  /** Made in the directory itself: hosts find it as they find what another host made. */
  async #newKey({ k1, organization }: FleetBudgets): Promise<string> {
    const secret = 'a'.repeat(18)
    const sha256 = new Bun.CryptoHasher('sha256').update(secret).digest('hex')
    const gatewayKey = (prefix: string, budget: number | null) =>
      `INSERT INTO gateway_keys (prefix, organization_id, secret_sha256, created_at_ms, budget_nano_usd)
         VALUES ('${prefix}', 'o', '\\x${'00'.repeat(32)}', 0, ${budget ?? 'NULL'});`
    await this.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true);
      INSERT INTO organizations (id, slug, status, created_at_ms, budget_nano_usd)
        VALUES ('o', 'acme', 'active', ${Date.now()}, ${organization});
      INSERT INTO keys (prefix, organization_id, secret_sha256, scope, created_at_ms)
        VALUES ('abcdefgh', 'o', '\\x${sha256}', 'write', 0);
      ${gatewayKey('k1', k1)} ${gatewayKey('k2', null)}
      COMMIT`)
    const key = `ca_abcdefgh_${secret}`
    await until('the key is known', allStartMs, async () => {
      const answers = await Promise.all(
        this.hosts.map(({ process: at }) =>
          fetch(`${at?.url}/v1/usage`, { headers: { Authorization: `Bearer ${key}` } }),
        ),
      )
      return answers.every(({ ok }) => ok)
    })
    return key
  }
}

export function passwordFile(directory: string): string {
  return join(directory, 'password')
}

export function logFile(directory: string): string {
  return join(directory, 'log')
}
