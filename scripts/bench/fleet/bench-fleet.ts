// A fleet under measurement: PostgreSQL of Debian's package as it is by default, hosts as processes. Effects:
// processes, files of a temporary directory, ports on loopback; all of it ends with this process.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, present } from '../../../src/base/assert.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import type { FleetHostOptions } from '../../rigs/fleet/fleet-host.ts'
import { publicKey } from '../../rigs/instances/instances-service.ts'
import { connect, newFleet } from '../../rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../rigs/postgres/server.ts'
import { until } from '../../rigs/until.ts'
import { cpuMsOf } from '../gateway/cost.ts'
import type { FromHost, HostProgramOptions, ToHost } from './host-messages.ts'

const program = join(import.meta.dir, 'host-program.ts')
const [startMs, keyMs, readyMs] = [60_000, 30_000, 600_000]
/** Hosts that start at a time, and rows of a transaction that seeds. */
const [startsAtATime, seedRowCount] = [4, 500]
/** About what a warm VM takes until it is ready. */
const warmReadyMs = 1_000
const placesEach = 100_000

export type BenchHost = {
  readonly name: string
  readonly hostId: string
  readonly url: string
  readonly pid: number
  /** By the wall clock: when it first knew the address of a name. */
  readonly namedAtMs: (hostname: string) => Promise<number>
  /** By the wall clock: when its copy had a version. */
  readonly reachedAtMs: (version: number) => Promise<number>
  /** Half of the VMs of its process that are ready send from now on. */
  readonly send: () => void
  /** With the other hosts of its process. */
  readonly kill: () => Promise<void>
}

/** Instances as service A shows them. */
export type Shown = {
  readonly name: string
  readonly hostname: string
  readonly status: string
  readonly ready_at: string | null
  readonly failure_code: string | null
}

/** Totals of the server since it started; `ms` without waiting for the directory's counter, which `waitMs` is. */
export type DatabaseWork = {
  readonly statements: number
  readonly ms: number
  readonly turns: number
  readonly waitMs: number
}

export async function startDatabase(): Promise<PostgresServer> {
  assert(hasPostgres, 'PostgreSQL is there; scripts/setup installs it')
  return await startPostgres({
    settings: {
      fsync: 'on',
      max_connections: '700',
      shared_preload_libraries: 'pg_stat_statements',
      'pg_stat_statements.max': '10000',
    },
  })
}

export class BenchFleet implements AsyncDisposable {
  readonly hosts: BenchHost[] = []
  readonly database: string
  readonly postgres: Postgres
  readonly #root = mkdtempSync(join(tmpdir(), 'srt-bench-fleet-'))
  #organizationCount = 0

  private constructor(database: string, postgres: Postgres) {
    this.database = database
    this.postgres = postgres
  }

  /** `hostsEach`: of a process. */
  static async open(server: PostgresServer, hostCount: number, hostsEach = 1): Promise<BenchFleet> {
    const database = await newFleet(server)
    await server.run('CREATE EXTENSION pg_stat_statements', new URL(database).pathname.slice(1))
    const postgres = await connect(server, database, { statementMs: 60_000, lockMs: 60_000, transactionMs: 60_000 })
    const fleet = new BenchFleet(database, postgres)
    try {
      const names = Array.from({ length: hostCount }, (_, index) => `host-${index}`)
      const processes = Array.from({ length: Math.ceil(hostCount / hostsEach) }, (_, index) =>
        names.slice(index * hostsEach, (index + 1) * hostsEach),
      )
      for (let at = 0; at < processes.length; at += startsAtATime) {
        await Promise.all(processes.slice(at, at + startsAtATime).map(each => fleet.#startAll(each)))
      }
      return fleet
    } catch (error) {
      await fleet[Symbol.asyncDispose]()
      throw error
    }
  }

  /** Also one that was killed. */
  async start(name: string, lostAfterMs = 60_000): Promise<BenchHost> {
    const [host] = await this.#startAll([name], lostAfterMs)
    return present(host, 'a host was started')
  }

  async #startAll(names: readonly string[], lostAfterMs = 60_000): Promise<readonly BenchHost[]> {
    const hosts = await startHosts(
      names.map((name): FleetHostOptions => {
        const directory = join(this.#root, name)
        mkdirSync(directory, { recursive: true })
        return {
          directory,
          database: this.database,
          name,
          places: placesEach,
          lostAfterMs,
          bootMs: warmReadyMs,
          areVmsKept: false,
          settings: { instancesPerOrganizationMax: 1_000_000, createsPerDayMax: 1_000_000 },
          isPatient: true,
        }
      }),
    )
    this.hosts.push(...hosts)
    return hosts
  }

  async kill(host: BenchHost): Promise<void> {
    this.hosts.splice(this.hosts.indexOf(host), 1)
    await host.kill()
  }

  async newOrganization(): Promise<string> {
    this.#organizationCount += 1
    const id = `o${this.#organizationCount}`
    const values = [id, Date.now()]
    const insert = "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ($1, $1, 'active', $2)"
    await this.postgres.transact(tx => tx.query(insert, values))
    return id
  }

  /** The key of a new organization, made in the directory itself and known to all hosts. */
  async newKey(): Promise<{ readonly key: string; readonly organizationId: string }> {
    const organizationId = await this.newOrganization()
    const { key, prefix, secretSha256 } = mintKey(systemRandom)
    const values = [prefix, organizationId, Buffer.from(secretSha256), Date.now()]
    const columns = '(prefix, organization_id, secret_sha256, scope, created_at_ms)'
    await this.postgres.transact(tx => tx.query(`INSERT INTO keys ${columns} VALUES ($1, $2, $3, 'write', $4)`, values))
    await until('all hosts know the key', keyMs, async () => {
      const answers = await Promise.all(this.hosts.map(host => send(host, key, 'GET', '/v1/usage')))
      return answers.every(({ ok }) => ok)
    })
    return { key, organizationId }
  }

  /** Adds instances to an organization, over all hosts. `provisioning` ones become ready by and by. */
  async seed(organizationId: string, count: number, status: 'provisioning' | 'terminated'): Promise<void> {
    const desired = status === 'terminated' ? 'absent' : 'present'
    const hostIds = this.hosts.map(({ hostId }) => hostId)
    for (let from = 0; from < count; from += seedRowCount) {
      await this.postgres.transact(async tx => {
        await tx.query(
          `INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key,
             inference_mode, inference_model, created_at_ms, changed_at_ms, terminated_at_ms, platform)
           SELECT gen_random_uuid()::text, ($2::text[])[1 + n % cardinality($2::text[])], $1,
             'x' || lpad(n::text, 7, '0'), 'x' || lpad(n::text, 7, '0') || '.' || $1 || '.agents.example', $3, $4,
             'opencode', $5, 'default_gateway', 'tiny', $6::bigint + n, $6::bigint + n,
             CASE WHEN $4 = 'terminated' THEN $6::bigint + n END, 'tcg'
           FROM generate_series($7::int, $8::int) AS n`,
          [
            organizationId,
            hostIds,
            desired,
            status,
            publicKey,
            Date.now(),
            from,
            Math.min(from + seedRowCount, count) - 1,
          ],
        )
      })
    }
  }

  /** Until nothing is provisioned any more, and every host has heard of it. */
  async settled(): Promise<void> {
    await until('everything is ready', readyMs, async () => {
      const [row] = await this.postgres.query<{ count: number }>(
        "SELECT count(*) AS count FROM instances WHERE status IN ('provisioning', 'terminating')",
      )
      return row?.count === 0
    })
  }

  async work(): Promise<DatabaseWork> {
    const [row] = await this.postgres.query<DatabaseWork>(
      `SELECT coalesce(sum(calls), 0)::bigint AS statements,
         coalesce(sum(total_exec_time) FILTER (WHERE query NOT LIKE '%begin_change%'), 0)::float8 AS ms,
         coalesce(sum(calls) FILTER (WHERE query LIKE '%begin_change%'), 0)::bigint AS turns,
         coalesce(sum(total_exec_time) FILTER (WHERE query LIKE '%begin_change%'), 0)::float8 AS "waitMs"
       FROM public.pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'`,
    )
    return present(row, 'an aggregate has one row')
  }

  /** Numbered transactions so far. */
  async version(): Promise<number> {
    const [row] = await this.postgres.query<{ version: number }>('SELECT version FROM fleet')
    return present(row, 'a directory has its counter').version
  }

  /** Size of the rows of `changes` after a version. */
  async changesBytes(version: number): Promise<number> {
    const [row] = await this.postgres.query<{ bytes: number }>(
      'SELECT coalesce(sum(pg_column_size(changes.*)), 0)::bigint AS bytes FROM changes WHERE version > $1',
      [version],
    )
    return present(row, 'an aggregate has one row').bytes
  }

  async databaseBytes(): Promise<number> {
    const [row] = await this.postgres.query<{ bytes: number }>('SELECT pg_database_size(current_database()) AS bytes')
    return present(row, 'a function has one row').bytes
  }

  cpuMs(): number {
    return [...new Set(this.hosts.map(({ pid }) => pid))].reduce((sum, pid) => sum + cpuMsOf(pid), 0)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.hosts.splice(0).map(host => host.kill()))
    await this.postgres.close()
    rmSync(this.#root, { recursive: true, force: true })
  }
}

/** Starts hosts in one process. */
async function startHosts(hosts: readonly FleetHostOptions[]): Promise<BenchHost[]> {
  const started = Promise.withResolvers<Extract<FromHost, { kind: 'started' }>>()
  const awaited = new Map<string, PromiseWithResolvers<number>>()
  const options: HostProgramOptions = { hosts }
  const child = Bun.spawn([process.execPath, program, JSON.stringify(options)], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'inherit',
    ipc: (message: FromHost) => {
      if (message.kind === 'started') started.resolve(message)
      else awaited.get(String(message.kind === 'named' ? message.hostname : message.version))?.resolve(message.atMs)
    },
  })
  const kill = async () => {
    child.kill('SIGKILL')
    await child.exited
  }
  const names = hosts.map(({ name }) => name)
  const late = setTimeout(() => started.reject(new Error(`${names} did not start`)), startMs * hosts.length)
  void child.exited.then(code => started.reject(new Error(`${names} ended with ${code}`)))
  const ask = (what: string, question: ToHost) => {
    const at = Promise.withResolvers<number>()
    awaited.set(what, at)
    child.send(question)
    return at.promise
  }
  try {
    return (await started.promise).hosts.map(({ url, hostId }, host) => ({
      ...{ name: names[host] ?? '', hostId, url, pid: child.pid, kill },
      namedAtMs: hostname => ask(hostname, { kind: 'name', host, hostname }),
      reachedAtMs: version => ask(String(version), { kind: 'version', host, version }),
      send: () => child.send({ kind: 'send' } satisfies ToHost),
    }))
  } catch (error) {
    await kill()
    throw error
  } finally {
    clearTimeout(late)
  }
}

export function send({ url }: Pick<BenchHost, 'url'>, key: string, method: string, path: string): Promise<Response> {
  const isPost = method === 'POST'
  return fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, ...(isPost ? { 'Content-Type': 'application/json' } : {}) },
    ...(isPost ? { body: JSON.stringify({ public_key: publicKey }) } : {}),
  })
}

/** Creates an instance, which must be accepted; how long that took. */
export async function timedCreate(
  host: BenchHost,
  key: string,
): Promise<{ readonly ms: number; readonly shown: Shown }> {
  const startedMs = performance.now()
  const response = await send(host, key, 'POST', '/v1/instances')
  const text = await response.text()
  const ms = performance.now() - startedMs
  if (response.status !== 202) throw new Error(`a create: ${response.status} ${text}`)
  return { ms, shown: (JSON.parse(text) as { data: Shown }).data }
}

/** Lists an organization's instances without reading the text; how long that took. */
export async function timedList(
  host: BenchHost,
  key: string,
): Promise<{ readonly ms: number; readonly bytes: Uint8Array }> {
  const startedMs = performance.now()
  const response = await send(host, key, 'GET', '/v1/instances')
  const bytes = new Uint8Array(await response.arrayBuffer())
  if (!response.ok) throw new Error(`a list: ${response.status}`)
  return { ms: performance.now() - startedMs, bytes }
}

export async function shown(host: BenchHost, key: string, name: string): Promise<Shown> {
  return ((await (await send(host, key, 'GET', `/v1/instances/${name}`)).json()) as { data: Shown }).data
}
