// A real sshd on a free port of loopback, with a host key and a user's key of its own. Effects: files in the caller's directory, one process.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'

export type SshServer = AsyncDisposable & {
  readonly port: number
  /** `ssh-ed25519 AAAA…`, without a comment. */
  readonly hostKey: string
  /** Private key file of the user who may log in, and the public line. */
  readonly userKeyFile: string
  readonly publicKey: string
  /** Who this process is: sshd lets in nobody else. */
  readonly user: string
  /** What sshd has logged. */
  readonly log: () => string
}

const sshd = '/usr/sbin/sshd'

export function hasSshd(): boolean {
  return Bun.which('ssh') !== null && Bun.which(sshd) !== null
}

export async function startSshServer(directory: string): Promise<SshServer> {
  // Not os.userInfo, which takes the name from the environment.
  const user = Bun.spawnSync(['id', '-un']).stdout.toString().trim()
  const hostKeyFile = join(directory, 'ssh_host_ed25519_key')
  const userKeyFile = join(directory, 'id_ed25519')
  for (const path of [hostKeyFile, userKeyFile]) keygen(path)
  const logFile = join(directory, 'sshd.log')
  const port = freePort()
  const config = [
    ...[`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${hostKeyFile}`, 'PidFile none', 'UsePAM no'],
    ...[
      `AuthorizedKeysFile ${userKeyFile}.pub`,
      'AuthenticationMethods publickey',
      'PermitRootLogin prohibit-password',
    ],
    // The directory is in /tmp, which others may write.
    ...['StrictModes no', `AllowUsers ${user}`, 'PrintMotd no', 'LogLevel VERBOSE'],
  ]
  const configFile = join(directory, 'sshd_config')
  writeFileSync(configFile, `${config.join('\n')}\n`)
  // Of sshd's own package; only a daemon of the system makes it at boot.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 })
  const child = Bun.spawn([sshd, '-D', '-f', configFile, '-E', logFile], { stdio: ['ignore', 'ignore', 'ignore'] })
  const log = () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : '')
  const stop = async () => {
    child.kill('SIGTERM')
    await child.exited
  }
  try {
    await until('sshd listens', 10_000, () => {
      if (child.exitCode !== null) throw new Error(`sshd: ${child.exitCode}: ${log()}`)
      return log().includes('Server listening')
    })
  } catch (error) {
    await stop()
    throw error
  }
  return {
    port,
    userKeyFile,
    user,
    log,
    hostKey: publicLine(hostKeyFile),
    publicKey: publicLine(userKeyFile),
    [Symbol.asyncDispose]: stop,
  }
}

function keygen(path: string): void {
  const { exitCode, stderr } = Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', path])
  if (exitCode !== 0) throw new Error(`ssh-keygen: ${stderr}`)
}

function publicLine(path: string): string {
  return readFileSync(`${path}.pub`, 'utf8').trim().split(' ').slice(0, 2).join(' ')
}

function freePort(): number {
  const listener = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } })
  listener.stop(true)
  return listener.port
}
