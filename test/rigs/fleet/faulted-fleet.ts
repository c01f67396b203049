// A fleet of host processes whose hosts, database and ways to it fail at random, and clients that go on through it.
// Effects: processes, a database, ports, files of a temporary directory.

import { Database } from 'bun:sqlite'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { publicKey } from '../../../scripts/rigs/instances/instances-service.ts'
import { newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { createDraw } from '../draw.ts'
import type { PostgresPair } from '../postgres/pair.ts'
import { type DatabaseProxy, startProxy } from '../postgres/proxy.ts'

type Process = { readonly child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>; readonly url: string; readonly hostId: string }

export type FaultedHost = {
  readonly name: string
  readonly directory: string
  readonly proxy: DatabaseProxy
  process: Process | null
  /** Monotonic; null while it runs. */
  downSinceMs: number | null
}

/** A wish of a client. Its answer may be unknown: then it is asked for again with the same key. */
export type Wished = {
  readonly key: string
  name: string | null
  isDeleteAccepted: boolean
}

export type InstanceRow = {
  readonly name: string
  readonly status: string
  readonly terminated_reason: string | null
  readonly ready_at: string | null
}

const program = join(import.meta.dir, '../../../scripts/rigs/fleet/host-program.ts')
const answerMs = 12_000
/** More than a run makes. */
const placesEach = 100_000
/** Before the fleet gives its instances up. */
const downMsMax = 20_000
/** Less than a create is remembered for. */
const wrongMsMax = 2 * 3_600_000
const settings = { instancesPerOrganizationMax: 100_000 }

export class FaultedFleet implements AsyncDisposable {
  readonly hosts: FaultedHost[] = []
  readonly wishes: Wished[] = []
  /** In order. */
  readonly faults: string[] = []
  /** Last answer to a create that was not accepted, for a failing test. */
  lastRefusal = ''
  readonly #databases: PostgresPair
  readonly #database: string
  readonly #root = mkdtempSync(join(tmpdir(), 'srt-faults-'))
  readonly #draw: (count: number) => number
  #key = ''

  private constructor(databases: PostgresPair, database: string, seed: number) {
    this.#databases = databases
    this.#database = database
    this.#draw = createDraw(seed)
  }

  static async open(
    databases: PostgresPair,
    { hostCount, seed }: { hostCount: number; seed: number },
  ): Promise<FaultedFleet> {
    const fleet = new FaultedFleet(databases, await newFleet(databases.primary), seed)
    for (let index = 0; index < hostCount; index += 1) {
      const name = `host-${index}`
      const directory = join(fleet.#root, name)
      mkdirSync(directory)
      const proxy = await startProxy(databases.primary.port)
      fleet.hosts.push({ name, directory, proxy, process: null, downSinceMs: 0 })
    }
    for (const host of fleet.hosts) await fleet.start(host)
    fleet.#key = await fleet.#newKey()
    return fleet
  }

  async start(host: FaultedHost): Promise<void> {
    if (host.process !== null) return
    const database = this.#database.replace(/:\d+\//, `:${host.proxy.port}/`)
    const options = {
      directory: host.directory,
      database,
      name: host.name,
      bootMs: 20 + this.#draw(80),
      places: placesEach,
      settings,
      isPatient: true,
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
    host.downSinceMs = null
    host.process = { child, ...JSON.parse(Buffer.from(value).toString()) }
  }

  /** One fault, which ends before this resolves, or leaves a host down until the next `start`. */
  async fault(): Promise<void> {
    for (const { downSinceMs, ...host } of this.hosts) {
      if (downSinceMs !== null && performance.now() - downSinceMs > downMsMax) await this.start(this.#named(host.name))
    }
    const host = this.hosts[this.#draw(this.hosts.length)] as FaultedHost
    const forMs = 50 + this.#draw(700)
    const wrongMs = this.#draw(2 * wrongMsMax) - wrongMsMax
    const kinds: readonly (readonly [string, () => Promise<void>])[] = [
      [`kill ${host.name}`, () => this.#kill(host)],
      [`kill and start ${host.name}`, async () => this.#kill(host).then(() => this.start(host))],
      [`pause ${host.name} ${forMs}`, () => this.#pause(host, forMs)],
      [`no way for ${host.name} ${forMs}`, () => this.#hole(host, forMs)],
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
      [`the clock of ${host.name} is wrong by ${wrongMs}`, async () => this.#setClock(host, wrongMs)],
      [
        `the clock of the database is wrong by ${wrongMs}`,
        async () => this.#databases.setClock(Math.round(wrongMs / 1000)),
      ],
      ['all hosts start', () => this.startAll()],
    ]
    const [what, act] = kinds[this.#draw(kinds.length)] as (typeof kinds)[number]
    this.faults.push(what)
    await act()
    await Bun.sleep(this.#draw(150))
  }

  /** New connections find the server that took over, as a name or an address that follows it has them do. */
  async #failOver(): Promise<void> {
    await this.#databases.failOver()
    for (const { proxy } of this.hosts) proxy.lead(this.#databases.primary.port)
  }

  #setClock({ process: at }: FaultedHost, wrongMs: number): void {
    at?.child.stdin.write(`${wrongMs}\n`)
    at?.child.stdin.flush()
  }

  #named(name: string): FaultedHost {
    return this.hosts.find(host => host.name === name) as FaultedHost
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

  /** Creates and deletes until the signal is aborted, whatever the answers. */
  async client(name: string, seed: number, signal: AbortSignal): Promise<void> {
    const draw = createDraw(seed)
    const own: Wished[] = []
    for (let count = 0; !signal.aborted; count += 1) {
      const unknown = own.filter(wish => wish.name === null)
      const living = own.filter(wish => wish.name !== null && !wish.isDeleteAccepted)
      const step = draw(10)
      if (step < 3 && unknown.length > 0) await this.create(unknown[draw(unknown.length)] as Wished, draw)
      else if (step < 6 && living.length > 0) await this.remove(living[draw(living.length)] as Wished, draw)
      else {
        const wish = { key: `${name}-${count}`, name: null, isDeleteAccepted: false }
        own.push(wish)
        this.wishes.push(wish)
        await this.create(wish, draw)
      }
      await Bun.sleep(50 + draw(150))
    }
  }

  async create(wish: Wished, draw: (count: number) => number): Promise<void> {
    const answer = await this.#ask(draw, 'POST', '/v1/instances', wish.key)
    if (answer?.status !== 202) {
      this.lastRefusal = JSON.stringify(answer)
      return
    }
    const { name } = (answer.body as { data: InstanceRow }).data
    if (wish.name !== null && wish.name !== name) throw new Error(`${wish.key} made ${wish.name} and ${name}`)
    wish.name = name
  }

  async remove(wish: Wished, draw: (count: number) => number): Promise<void> {
    const answer = await this.#ask(draw, 'DELETE', `/v1/instances/${wish.name}`)
    if (answer?.status === 404) throw new Error(`${wish.name} was acknowledged and is not there`)
    if (answer?.status === 202) wish.isDeleteAccepted = true
  }

  async list(host: FaultedHost): Promise<readonly InstanceRow[]> {
    const url = host.process?.url
    const response = await fetch(`${url}/v1/instances`, { headers: { Authorization: `Bearer ${this.#key}` } })
    return ((await response.json()) as { data: { instances: InstanceRow[] } }).data.instances
  }

  /** Names of the VMs that a host runs. */
  vms(host: FaultedHost): string[] {
    return readdirSync(join(host.directory, 'vms')).sort()
  }

  /** VMs that its records name, and its change log by instance. */
  recordsOf(host: FaultedHost): { readonly vms: string[]; readonly log: string[] } {
    using sqlite = new Database(join(host.directory, 'strongroom.db'), { readonly: true })
    const vms = sqlite
      .query<{ vm_id: string }, [string]>(
        'SELECT vm_id FROM instances WHERE host_id = ? AND vm_id IS NOT NULL ORDER BY 1',
      )
      .all(host.process?.hostId ?? '')
    return {
      vms: vms.map(({ vm_id }) => vm_id),
      log: sqlite
        .query<{ line: string }, []>(LOG)
        .all()
        .map(({ line }) => line),
    }
  }

  async directoryLog(): Promise<string[]> {
    return (await this.sql(LOG.replace('FROM instance_changes', 'FROM strongroom.instance_changes')))
      .split('\n')
      .filter(Boolean)
  }

  async sql(text: string): Promise<string> {
    return (await this.#databases.primary.run(text, new URL(this.#database).pathname.slice(1))).trim()
  }

  logs(): string {
    return this.hosts
      .map(host => readFileSync(join(host.directory, 'log'), 'utf8').split('\n').slice(-20).join('\n'))
      .join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of this.hosts) {
      await this.#kill(host)
      await host.proxy[Symbol.asyncDispose]()
    }
    rmSync(this.#root, { recursive: true, force: true })
  }

  async #ask(
    draw: (count: number) => number,
    method: string,
    path: string,
    idempotencyKey?: string,
  ): Promise<{ status: number; body: unknown } | null> {
    const { process: at } = this.hosts[draw(this.hosts.length)] as FaultedHost
    if (at === null) return null
    try {
      const response = await fetch(at.url + path, {
        method,
        signal: AbortSignal.timeout(answerMs),
        headers: {
          Authorization: `Bearer ${this.#key}`,
          ...(method === 'POST' ? { 'Content-Type': 'application/json' } : {}),
          ...(idempotencyKey === undefined ? {} : { 'Idempotency-Key': idempotencyKey }),
        },
        ...(method === 'POST' ? { body: JSON.stringify({ public_key: publicKey }) } : {}),
      })
      return { status: response.status, body: await response.json() }
    } catch {
      // Killed, paused or cut off: what became of it is not known.
      return null
    }
  }

  /** Made in the directory itself: hosts find it as they find what another host made. */
  async #newKey(): Promise<string> {
    const secret = 'a'.repeat(18)
    const sha256 = new Bun.CryptoHasher('sha256').update(secret).digest('hex')
    await this.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true);
      INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o', 'acme', 'active', ${Date.now()});
      INSERT INTO keys (prefix, organization_id, secret_sha256, scope, created_at_ms)
        VALUES ('abcdefgh', 'o', '\\x${sha256}', 'write', 0);
      COMMIT`)
    const key = `ca_abcdefgh_${secret}`
    await until('the key is known', 10_000, async () => {
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

const LOG = "SELECT instance_id || ' ' || status AS line FROM instance_changes ORDER BY 1"
