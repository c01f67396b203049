// A real sshd on a free loopback port, with its own host key and user key. Effects: files in the caller's directory,
// a process.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { until } from '../../../scripts/rigs/until.ts'

export type SshServer = AsyncDisposable & {
  readonly port: number
  /** `ssh-ed25519 AAAA…`, without a comment. */
  readonly hostKey: string
  /** Private key file of the user who may log in, and the public line. */
  readonly userKeyFile: string
  readonly publicKey: string
  /** User of this process: sshd admits no other. */
  readonly user: string
  /** Log of sshd. */
  readonly log: () => string
}

const sshd = '/usr/sbin/sshd'

export function hasSshd(): boolean {
  return Bun.which('ssh') !== null && Bun.which(sshd) !== null
}

/** `programs`: a directory whose programs its sessions find before others. */
export async function startSshServer(directory: string, programs: string | null = null): Promise<SshServer> {
  // Not os.userInfo, which takes the name from the environment.
  const user = Bun.spawnSync(['id', '-un']).stdout.toString().trim()
  const hostKeyFile = join(directory, 'ssh_host_ed25519_key')
  const userKeyFile = join(directory, 'id_ed25519')
  for (const path of [hostKeyFile, userKeyFile]) keygen(path)
  const logFile = join(directory, 'sshd.log')
  const port = lastingPort()
  const config = [
    ...[`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${hostKeyFile}`, 'PidFile none', 'UsePAM no'],
    ...[
      `AuthorizedKeysFile ${userKeyFile}.pub`,
      'AuthenticationMethods publickey',
      'PermitRootLogin prohibit-password',
    ],
    // The directory is in /tmp, which others may write.
    ...['StrictModes no', `AllowUsers ${user}`, 'PrintMotd no', 'LogLevel VERBOSE', 'Subsystem sftp internal-sftp'],
    ...(programs === null ? [] : [`SetEnv PATH=${programs}:/usr/bin:/bin`]),
  ]
  const configFile = join(directory, 'sshd_config')
  writeFileSync(configFile, `${config.join('\n')}\n`)
  // sshd's own package leaves this directory to the system's daemon at boot.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 })
  const child = Bun.spawn([sshd, '-D', '-f', configFile, '-E', logFile], { stdio: ['ignore', 'ignore', 'ignore'] })
  const log = () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : '')
  const stop = async () => {
    child.kill('SIGTERM')
    await child.exited
  }
  try {
    await until('sshd listens', 60_000, () => {
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
