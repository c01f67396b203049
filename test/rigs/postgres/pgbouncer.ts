// PgBouncer of Debian's package between tests and their PostgreSQL, on loopback. Effects: a process, which ends with
// the test's own; a temporary directory; a port.

import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { asUser, giveToServer } from '../../../scripts/rigs/postgres/programs.ts'
import { ownerRole, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { until } from '../../../scripts/rigs/until.ts'

const program = '/usr/sbin/pgbouncer'

export const hasPgBouncer = existsSync(program)

export type PoolMode = 'session' | 'transaction' | 'statement'

/** Returns the server as clients see it through PgBouncer: `url` has its port, all else is the server's own. */
export async function startPgBouncer(
  server: PostgresServer,
  mode: PoolMode,
  settings: Readonly<Record<string, string>> = {},
): Promise<PostgresServer> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-pgbouncer-'))
  const [port, log] = [lastingPort(), join(directory, 'log')]
  const lines = Object.entries({
    ...{ listen_addr: '127.0.0.1', listen_port: `${port}`, unix_socket_dir: '', pool_mode: mode },
    // Each role that the server has, without a password.
    ...{ auth_type: 'trust', auth_user: ownerRole, auth_query: "SELECT rolname, '' FROM pg_roles WHERE rolname = $1" },
    ...{ auth_file: join(directory, 'users'), ...settings },
  }).map(([name, value]) => `${name} = ${value}`)
  const databases = `[databases]\n* = host=127.0.0.1 port=${server.port}\n`
  writeFileSync(join(directory, 'users'), `"${ownerRole}" ""\n`)
  writeFileSync(join(directory, 'ini'), `${databases}[pgbouncer]\n${lines.join('\n')}\n`)
  chmodSync(directory, 0o755)
  for (const path of [directory, join(directory, 'users'), join(directory, 'ini')]) giveToServer(path)
  const output = Bun.file(log)
  const argv = asUser(program, join(directory, 'ini'))
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: output, stderr: output, cwd: '/' })
  const close = async () => {
    child.kill('SIGKILL')
    await child.exited
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    await until('PgBouncer answers', 30_000, async () => {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${readFileSync(log, 'utf8')}`)
      return await accepts(port)
    })
  } catch (error) {
    await close()
    throw error
  }
  return {
    ...server,
    port,
    url: to => server.url(to).replace(`:${server.port}/`, `:${port}/`),
    log: () => readFileSync(log, 'utf8'),
    [Symbol.asyncDispose]: close,
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
