// A fleet of host processes whose hosts, database, clocks and ways to it and to one another fail at random. Effects:
// processes, a database, ports, files of a temporary directory.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createDraw } from '../../rigs/draw.ts'
import type { HostAddresses, HostProgramOptions } from '../../rigs/fleet/host-program.ts'
import { newFleet } from '../../rigs/postgres/fleet.ts'
import type { PostgresPair } from '../../rigs/postgres/pair.ts'
import { type DatabaseProxy, startProxy } from '../../rigs/postgres/proxy.ts'
import { until } from '../../rigs/until.ts'

type Process = HostAddresses & { readonly child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> }

export type FaultedHost = {
  readonly name: string
  readonly directory: string
  readonly proxy: DatabaseProxy
  /** Its ways to the others, by their names. */
  readonly peerWays: Map<string, DatabaseProxy>
  process: Process | null
  /** Monotonic; null while it runs. */
  downSinceMs: number | null
}

/** A fault that is over only with a later one. */
type Lasting = { readonly healAt: number; readonly heal: () => Promise<void> | void }

export type FaultedFleetOptions = {
  readonly hostCount: number
  readonly seed: number
  /** In nano-dollars a month. */
  readonly budgets: { readonly k1: number; readonly organization: number }
}

const program = join(import.meta.dir, '../../../scripts/rigs/fleet/host-program.ts')
/** One in so many instances gives evidence. */
const attestedOneOf = 8
const nowhere = 1
/** As long as a host may need for its turn on a machine that is busy. */
const clockMs = 60_000
/** From a fault to the next, at most: clients get on between them. */
const restMs = 500
/** Instances that a host takes at a time; its pool has more addresses, as some rest. */
const placesEach = 500
/** Before the fleet gives its instances up. */
const downMsMax = 20_000
/** Less than a create is remembered for. */
const wrongMsMax = 2 * 3_600_000
/** A start may fail while the standby of the database finds its way back. */
const allStartMs = 120_000
/** Faults until one that lasts is over. */
const lastsMax = 6
const settings = { instancesPerOrganizationMax: 100_000 }

export class FaultedFleet implements AsyncDisposable {
  readonly hosts: FaultedHost[] = []
  /** In order. */
  readonly faults: string[] = []
  readonly #databases: PostgresPair
  readonly #database: string
  readonly #root = mkdtempSync(join(tmpdir(), 'srt-faults-'))
  readonly #draw: (count: number) => number
  #lasting: Lasting[] = []
  #key = ''

  private constructor(databases: PostgresPair, database: string, seed: number) {
    this.#databases = databases
    this.#database = database
    this.#draw = createDraw(seed)
  }

  static async open(databases: PostgresPair, { hostCount, seed, budgets }: FaultedFleetOptions): Promise<FaultedFleet> {
    const fleet = new FaultedFleet(databases, await newFleet(databases.primary), seed)
    const names = Array.from({ length: hostCount }, (_, index) => `host-${index}`)
    for (const name of names) {
      const directory = join(fleet.#root, name)
      mkdirSync(directory)
      const proxy = await startProxy(databases.primary.port)
      const peerWays = new Map<string, DatabaseProxy>()
      for (const other of names) if (other !== name) peerWays.set(other, await startProxy(nowhere))
      fleet.hosts.push({ name, directory, proxy, peerWays, process: null, downSinceMs: 0 })
    }
    for (const host of fleet.hosts) await fleet.start(host)
    fleet.#key = await fleet.#newKey(budgets)
    return fleet
  }

  /** The one organization's key. */
  get key(): string {
    return this.#key
  }

  async start(host: FaultedHost): Promise<void> {
    if (host.process !== null) return
    const options: HostProgramOptions = {
      directory: host.directory,
      database: this.#database.replace(/:\d+\//, `:${host.proxy.port}/`),
      name: host.name,
      bootMs: 20 + this.#draw(80),
      places: placesEach,
      settings,
      isPatient: true,
      pool: `10.${this.hosts.indexOf(host)}.0.0/22`,
      isAttested: attestedOneOf,
      peerWays: Object.fromEntries([...host.peerWays].map(([name, { port }]) => [name, port])),
      sumsEveryMs: 1_000,
      checkEveryMs: 2_000,
      hasBudgets: true,
    }
    const child = Bun.spawn([process.execPath, program, JSON.stringify(options)], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: Bun.file(join(host.directory, 'log')) as never,
    })
    const reader = child.stdout.getReader()
    const { value } = await reader.read()
    if (value === undefined) {
      await child.exited
      return
    }
    const addresses: HostAddresses = JSON.parse(Buffer.from(value).toString())
    host.downSinceMs = null
    host.process = { child, ...addresses }
    for (const { peerWays } of this.hosts) peerWays.get(host.name)?.lead(addresses.peerPort)
  }

  /** One fault, which ends before this resolves, or leaves a host down until the next `start`. */
  async fault(): Promise<void> {
    for (const host of this.hosts) {
      if (host.downSinceMs !== null && performance.now() - host.downSinceMs > downMsMax) await this.start(host)
    }
    await this.#heal(({ healAt }) => healAt <= this.faults.length)
    const host = this.hosts[this.#draw(this.hosts.length)] as FaultedHost
    const others = this.hosts.filter(({ name }) => name !== host.name)
    const other = others[this.#draw(others.length)] as FaultedHost
    const lasts = 1 + this.#draw(lastsMax)
    const forMs = 50 + this.#draw(700)
    const wrongMs = this.#draw(2 * wrongMsMax) - wrongMsMax
    const kinds: readonly (readonly [string, () => Promise<void>])[] = [
      [`kill ${host.name}`, () => this.#kill(host)],
      [`kill and start ${host.name}`, async () => this.#kill(host).then(() => this.start(host))],
      [`pause ${host.name} ${forMs}`, () => this.#pause(host, forMs)],
      [`no way for ${host.name} ${forMs}`, () => this.#hole(host, forMs)],
      [`no way for ${host.name}, for ${lasts} faults`, async () => this.#cutOff(host, lasts)],
      [
        `no way between ${host.name} and ${other.name}, for ${lasts} faults`,
        async () => this.#part(host, [other], lasts),
      ],
      [`no way between ${host.name} and any other, for ${lasts} faults`, async () => this.#part(host, others, lasts)],
      [`${host.name} loses a connection before a commit`, async () => host.proxy.set('before-commit')],
      [`${host.name} loses a connection after a commit`, async () => host.proxy.set('after-commit')],
      [
        'connections are ended',
        async () => {
          const others = 'pid <> pg_backend_pid() AND datname = current_database()'
          await this.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${others}`)
        },
      ],
      [
        `the database is frozen ${forMs}`,
        async () => {
          this.#databases.primary.freeze()
          await Bun.sleep(forMs)
          this.#databases.primary.thaw()
        },
      ],
      [
        'the database is killed',
        async () => {
          await this.#databases.primary.stop('kill')
          await Bun.sleep(forMs)
          await this.#databases.primary.start()
        },
      ],
      ['the standby takes over', () => this.#failOver()],
      [`the clock of ${host.name} is wrong by ${wrongMs}, for ${lasts} faults`, () => this.#jump(host, wrongMs, lasts)],
      [
        `the clock of the database is wrong by ${wrongMs}`,
        async () => {
          this.#databases.setClock(Math.round(wrongMs / 1000))
          await this.#endLaterChanges()
        },
      ],
      ['all hosts start', () => this.startAll()],
    ]
    const [what, act] = kinds[this.#draw(kinds.length)] as (typeof kinds)[number]
    this.faults.push(what)
    await act()
    await Bun.sleep(this.#draw(restMs))
  }

  /** New connections find the server that took over, as a name or an address that follows it has them do. */
  async #failOver(): Promise<void> {
    await this.#databases.failOver()
    for (const { proxy } of this.hosts) proxy.lead(this.#databases.primary.port)
  }

  async #jump(host: FaultedHost, wrongMs: number, lasts: number): Promise<void> {
    await this.#setClock(host, wrongMs)
    this.#last(lasts, () => this.#setClock(host, 0))
  }

  /**
   * Ends changes that the clock was set back under, as hosts with roles of their own do for each other
   * (`end_stuck_changes`). Hosts here are the owner, whose changes are not judged.
   */
  async #endLaterChanges(): Promise<void> {
    await this.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
      AND xact_start > clock_timestamp() + interval '10 seconds' AND wait_event IS DISTINCT FROM 'SyncRep'`)
  }

  /** A host that starts has a clock that is right. */
  async #setClock({ process: at }: FaultedHost, wrongMs: number): Promise<void> {
    if (at === null || at.child.exitCode !== null) return
    await fetch(`${at.booksUrl}/clock?wrongMs=${wrongMs}`, { signal: AbortSignal.timeout(clockMs) })
  }

  #cutOff({ proxy }: FaultedHost, lasts: number): void {
    proxy.set('hole')
    this.#last(lasts, () => proxy.set('open'))
  }

  /** Packets either way are dropped. */
  #part(host: FaultedHost, others: readonly FaultedHost[], lasts: number): void {
    for (const other of others) {
      for (const [from, to] of [
        [host, other],
        [other, host],
      ] as const) {
        const way = from.peerWays.get(to.name)
        way?.set('hole')
        this.#last(lasts, () => {
          way?.set('open')
          // Dropped bytes are not sent again: the connections end.
          way?.lead(to.process?.peerPort ?? nowhere)
        })
      }
    }
  }

  #last(lasts: number, heal: Lasting['heal']): void {
    this.#lasting.push({ healAt: this.faults.length + lasts, heal })
  }

  async #heal(isOver: (lasting: Lasting) => boolean): Promise<void> {
    const over = this.#lasting.filter(isOver)
    this.#lasting = this.#lasting.filter(lasting => !isOver(lasting))
    for (const { heal } of over) await heal()
  }

  /** Nothing is wrong any more. */
  async healAll(): Promise<void> {
    await this.#heal(() => true)
    for (const { proxy } of this.hosts) proxy.set('open')
    await until('all hosts run', allStartMs, async () => {
      await this.startAll()
      return this.hosts.every(host => host.process !== null)
    })
  }

  async startAll(): Promise<void> {
    for (const host of this.hosts) await this.start(host)
  }

  async #kill(host: FaultedHost): Promise<void> {
    host.process?.child.kill('SIGKILL')
    await host.process?.child.exited
    host.process = null
    host.downSinceMs ??= performance.now()
  }

  async #pause(host: FaultedHost, forMs: number): Promise<void> {
    host.process?.child.kill('SIGSTOP')
    await Bun.sleep(forMs)
    host.process?.child.kill('SIGCONT')
  }

  async #hole(host: FaultedHost, forMs: number): Promise<void> {
    host.proxy.set('hole')
    await Bun.sleep(forMs)
    host.proxy.set('open')
  }

  async sql(text: string): Promise<string> {
    return (await this.#databases.primary.run(text, new URL(this.#database).pathname.slice(1))).trim()
  }

  /** Lines of logs: copies that differed from the directory at one version. */
  wrongCopies(): string[] {
    return this.hosts.flatMap(({ directory }) =>
      readFileSync(join(directory, 'log'), 'utf8')
        .split('\n')
        .filter(line => line.includes('the copy of the directory differs from it')),
    )
  }

  logs(): string {
    return this.hosts
      .map(host => readFileSync(join(host.directory, 'log'), 'utf8').split('\n').slice(-20).join('\n'))
      .join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of this.hosts) {
      await this.#kill(host)
      for (const proxy of [host.proxy, ...host.peerWays.values()]) await proxy[Symbol.asyncDispose]()
    }
    rmSync(this.#root, { recursive: true, force: true })
  }

  /** Made in the directory itself: hosts find it as they find what another host made. */
  async #newKey({ k1, organization }: FaultedFleetOptions['budgets']): Promise<string> {
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
    await until('the key is known', 60_000, async () => {
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
