// PostgreSQL of Debian's package for tests: a server of its own in a temporary directory, on loopback. Effects:
// processes, which end with the test's own, however that ends; a temporary directory.
//
// As root the server runs as another user and in namespaces of its own, so that all of it ends at once, its shared
// memory included.

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemErrorCode } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { lastingPort } from '../free-port.ts'
import { until } from '../until.ts'
import { copyCluster } from './cluster.ts'
import { addFleetTemplate } from './fleet.ts'
import { asUser, command, giveToServer, isRoot, ownerRole, program } from './programs.ts'

export { hasPostgres, ownerRole } from './programs.ts'

export type PostgresSettings = {
  /** TLS with a certificate of an authority of its own. */
  readonly isTls?: boolean
  /** Lines of pg_hba.conf; by default loopback is trusted. */
  readonly access?: readonly string[]
  /** Settings of postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>
  /** Variables of the server's environment besides the test's own. */
  readonly env?: Readonly<Record<string, string>>
}

export type PostgresServer = {
  readonly port: number
  /** Address for a role and database; the owner's `postgres` when left out. */
  readonly url: (to?: { readonly role?: string; readonly database?: string; readonly password?: string }) => string
  /** Authority of its TLS; null without TLS. */
  readonly caPem: string | null
  readonly caFile: string | null
  /** Runs SQL, or several commands one after the other, as the owner, by psql. */
  readonly run: (sql: string | readonly string[], database?: string) => Promise<string>
  readonly start: () => Promise<void>
  /** As a machine that lost its power, or politely (`fast`: connections are ended). */
  readonly stop: (how?: 'kill' | 'fast') => Promise<void>
  /** SIGSTOP for all its processes: connections stay open and nothing answers. */
  readonly freeze: () => void
  readonly thaw: () => void
  /** A standby that follows this server by streaming; not started yet. */
  readonly standby: () => Promise<PostgresServer>
  /** Makes a standby the primary. */
  readonly promote: () => Promise<void>
  readonly log: () => string
} & AsyncDisposable

export async function startPostgres(settings: PostgresSettings = {}): Promise<PostgresServer> {
  const directory = newDirectory()
  const data = join(directory, 'data')
  await copyCluster(data, fillCluster)
  const access = settings.access ?? [
    'local all all trust',
    'host all all 127.0.0.1/32 trust',
    'host replication all 127.0.0.1/32 trust',
  ]
  writeFileSync(join(data, 'pg_hba.conf'), `${access.join('\n')}\n`)
  const tls = settings.isTls === true ? await writeCertificate(directory) : null
  const server = await serverOn(directory, settings, tls)
  await server.start()
  return server
}

async function fillCluster(directory: string): Promise<void> {
  const server = await serverOn(directory, {}, null)
  await server.start()
  await addFleetTemplate(server)
  await server.stop('fast')
}

function newDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'srt-postgres-'))
  giveToServer(directory)
  return directory
}

/** A killed server leaves its segments in /dev/shm, so it has one of its own. */
const APART = [
  ...['setpriv', '--pdeathsig=KILL', 'unshare', '--pid', '--ipc', '--mount', '--fork', '--kill-child=KILL'],
  ...['sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', 'sh'],
]

type Tls = { readonly caPem: string; readonly caFile: string; readonly cert: string; readonly key: string }

async function writeCertificate(directory: string): Promise<Tls> {
  const dir = join(directory, 'tls')
  mkdirSync(dir)
  const deps = { kind: 'clients', stateDir: dir, nowMs: Date.now, random: systemRandom } as const
  const authority = await openAuthority({ ...deps, names: ['localhost'] })
  const pair = await authority.issue(['localhost'], 30)
  const [cert, key] = [join(directory, 'server.crt'), join(directory, 'server.key')]
  writeFileSync(cert, pair.cert)
  writeFileSync(key, pair.key)
  chmodSync(key, 0o600)
  for (const path of [cert, key]) giveToServer(path)
  return { caPem: authority.caPem, caFile: authority.caFile, cert, key }
}

const startMs = 60_000

async function serverOn(directory: string, settings: PostgresSettings, tls: Tls | null): Promise<PostgresServer> {
  const data = join(directory, 'data')
  const port = lastingPort()
  const logPath = join(directory, 'log')
  let child: Bun.Subprocess | null = null
  const options = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: directory,
    // A crash of the server alone loses nothing without it; the power of the tests' machine stays on.
    fsync: 'off',
    max_connections: '60',
    wal_level: 'replica',
    ...(tls === null ? {} : { ssl: 'on', ssl_cert_file: tls.cert, ssl_key_file: tls.key }),
    ...settings.settings,
  }
  const psql = (sql: string | readonly string[], database = 'postgres') =>
    command([
      program('psql'),
      '--no-psqlrc',
      '--quiet',
      '--tuples-only',
      '--no-align',
      '--set=ON_ERROR_STOP=1',
      `--host=${directory}`,
      `--port=${port}`,
      `--username=${ownerRole}`,
      ...[sql].flat().map(text => `--command=${text}`),
      database,
    ])
  const pids = () => (child === null ? [] : descendants(child.pid))
  // Without what started it, which waits for its end.
  const serverPids = () => pids().filter(pid => programOf(pid) === 'postgres')
  const signal = (name: NodeJS.Signals) => {
    for (const pid of serverPids()) send(pid, name)
  }
  const server: PostgresServer = {
    port,
    url: ({ role = ownerRole, database = 'postgres', password } = {}) =>
      `postgres://${role}${password === undefined ? '' : `:${password}`}@${tls === null ? '127.0.0.1' : 'localhost'}:${port}/${database}`,
    caPem: tls?.caPem ?? null,
    caFile: tls?.caFile ?? null,
    run: psql,
    start: async () => {
      // A killed server leaves its file, which would report this server too early.
      rmSync(join(data, 'postmaster.pid'), { force: true })
      const set = Object.entries(options).flatMap(([name, value]) => ['-c', `${name}=${value}`])
      const log = Bun.file(logPath)
      const variables = Object.entries(settings.env ?? {}).map(([name, value]) => `${name}=${value}`)
      child = Bun.spawn(
        [...(isRoot ? APART : []), ...asUser('env', ...variables, program('postgres'), '-D', data, ...set)],
        {
          stdin: 'ignore',
          stdout: log,
          stderr: log,
          cwd: '/',
        },
      )
      await until('PostgreSQL answers', startMs, () => {
        if (child?.exitCode !== null) throw new Error(`PostgreSQL ended: ${readFileSync(logPath, 'utf8')}`)
        return answers(data)
      })
    },
    stop: async (how = 'kill') => {
      if (child === null) return
      const [postmaster] = serverPids()
      // In its namespace all end with the first process; without one, each by itself.
      const targets = how === 'fast' || isRoot ? [postmaster ?? child.pid] : pids()
      for (const pid of targets) send(pid, how === 'fast' ? 'SIGINT' : 'SIGKILL')
      await child.exited
      child = null
    },
    freeze: () => signal('SIGSTOP'),
    thaw: () => signal('SIGCONT'),
    standby: async () => {
      const to = newDirectory()
      await command([
        program('pg_basebackup'),
        '--host=127.0.0.1',
        `--port=${port}`,
        `--username=${ownerRole}`,
        `--pgdata=${join(to, 'data')}`,
        '--checkpoint=fast',
        '--write-recovery-conf',
        '--no-sync',
      ])
      return await serverOn(to, settings, tls)
    },
    promote: async () => {
      await psql('SELECT pg_promote(true, 60)')
    },
    log: () => readFileSync(logPath, 'utf8'),
    [Symbol.asyncDispose]: async () => {
      await server.stop()
      rmSync(directory, { recursive: true, force: true })
    },
  }
  return server
}

/** PostgreSQL's src/include/utils/pidfile.h: line 8 is the server's state, padded. */
function answers(data: string): boolean {
  return ['ready', 'standby'].includes(readText(join(data, 'postmaster.pid')).split('\n')[7]?.trim() ?? '')
}

/** The process and all below it, parents first. */
function descendants(pid: number): number[] {
  const found = [pid]
  for (let at = 0; at < found.length; at += 1) {
    const children = readText(`/proc/${found[at]}/task/${found[at]}/children`)
    found.push(...children.split(' ').filter(Boolean).map(Number))
  }
  return found
}

function programOf(pid: number): string {
  return readText(`/proc/${pid}/comm`).trim()
}

/** A server's processes and files come and go: empty for what is gone. */
function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (systemErrorCode(error) !== 'ESRCH') throw error
  }
}
