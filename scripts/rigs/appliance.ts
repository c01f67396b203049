// A whole appliance for end-to-end tests: the compiled executable with its own state, in the caller's network
// namespace. Effects: processes, files in a temporary directory, everything that `strongroom serve` does. Use inside
// `inOwnNetns`.

import { Resolver } from 'node:dns/promises'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildCachedImage } from './build/image-build.ts'
import { keepSimulatedPlatform } from './launch/simulated-keys.ts'
import { qemuProcesses } from './leftovers.ts'
import { until } from './until.ts'

/** As `imageDir`, of any recipe. */
export const builtImage = buildCachedImage

const root = join(import.meta.dir, '../..')
export const executable = join(root, 'dist/strongroom')

/** Seconds on a quiet machine. No test is about them. */
const [startMs, commandMs] = [300_000, 300_000]

export type ApiResponse<T = unknown> = { status: number; headers: Headers; body: T }

/** A running SSH command that can be typed to. */
export type Session = {
  readonly type: (text: string) => void
  /** Resolves once the output contains `text`. */
  readonly printed: (text: string, timeoutMs?: number) => Promise<void>
  readonly exited: Promise<number>
}

/** Called with the pid of a daemon that is stopped before its first instruction. It goes on by SIGCONT. */
export type WhileStopped = (pid: number) => Promise<void>

export type CliResult = { exitCode: number; stdout: string; stderr: string }

export type Appliance = {
  readonly stateDir: string
  readonly directory: string
  readonly url: string
  readonly pid: () => number
  /** Another executable from the next command and start on. */
  readonly use: (executable: string) => void
  /** Starts the daemon, waits for its clients' and its operator's side. Returns ms until the clients' side. */
  readonly start: (held?: WhileStopped) => Promise<number>
  /** SIGTERM and wait. VMs run on. */
  readonly stop: () => Promise<number>
  readonly kill: () => Promise<void>
  readonly cli: (...argv: string[]) => Promise<CliResult>
  /** CLI with --json; throws when it fails. */
  readonly admin: <T = unknown>(...argv: string[]) => Promise<T>
  readonly http: <T = unknown>(
    method: string,
    path: string,
    options?: { key?: string; body?: unknown; headers?: Record<string, string> },
  ) => Promise<ApiResponse<T>>
  /** Address by the appliance's own DNS, or null when there is no such name. */
  /** Its IPv4 address, else its IPv6 one. */
  readonly resolve: (hostname: string) => Promise<string | null>
  readonly resolveV6: (hostname: string) => Promise<string | null>
  readonly ssh: (hostname: string, command: readonly string[]) => Promise<CliResult>
  /** With further options before ours: OpenSSH keeps the first value that it meets. */
  /** `input` is typed, or piped, into it; without it there is none. */
  readonly sshWith: (
    options: readonly string[],
    hostname: string,
    command: readonly string[],
    input?: string,
  ) => Promise<CliResult>
  readonly sshSession: (hostname: string, command: string, ...options: string[]) => Session
  /** A client key pair of this appliance's tests. */
  readonly publicKey: string
  readonly log: () => string
  readonly [Symbol.asyncDispose]: () => Promise<void>
}

/** Where it runs: `within` is put before its commands, such as the entry of a namespace. */
export type ListenNetwork = { readonly address: string; readonly within: readonly string[] }

const here: ListenNetwork = { address: '127.0.0.1', within: [] }

/** `settings`: further lines of the TOML table `table`; `lines`: by table; `tables`: whole tables, put last. */
export async function createAppliance(
  settings = '',
  table = 'vm',
  image?: string,
  tables = '',
  lines: Readonly<Record<string, string>> = {},
  { address, within }: ListenNetwork = here,
): Promise<Appliance> {
  if (!existsSync(executable))
    throw new Error('dist/strongroom is missing: run scripts/test, or scripts/build-appliance.ts')
  const directory = mkdtempSync(join(tmpdir(), `srt-${process.pid}-`))
  chmodSync(directory, 0o711)
  const stateDir = join(directory, 'state')
  const config = join(directory, 'strongroom.toml')
  const logFile = join(directory, 'daemon.log')
  writeFileSync(
    config,
    configText(address, image ?? (await imageDir()), { ...lines, [table]: `${lines[table] ?? ''}\n${settings}` }) +
      tables,
  )
  // Hosts of a fleet make their own: they do not trust one another's.
  if (address === here.address) {
    mkdirSync(stateDir, { mode: 0o711 })
    await keepSimulatedPlatform(stateDir)
  }
  const keyFile = join(directory, 'client')
  await exec(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'client', '-f', keyFile])
  const publicKey = readFileSync(`${keyFile}.pub`, 'utf8').trim()
  const env = { ...process.env, STRONGROOM_CONFIG: config, STRONGROOM_STATE_DIR: stateDir }
  let daemon: Bun.Subprocess | null = null

  const url = `https://${address}:8441`
  let program = executable
  const cli = (...argv: string[]) => exec([...within, program, ...argv], { env, check: false })
  const end = async (signal: 'SIGTERM' | 'SIGKILL'): Promise<number> => {
    const ending = daemon
    daemon = null
    ending?.kill(signal)
    return (await ending?.exited) ?? 0
  }
  const ask = async (method: 'resolve4' | 'resolve6', hostname: string): Promise<string | null> => {
    // A new one each time: a resolver caches records for their time to live. That a name is not there is an answer, and
    // comes at once.
    const resolver = new Resolver({ timeout: 20_000, tries: 2 })
    resolver.setServers([`${address}:53`])
    const addresses = await resolver[method](hostname).catch(() => [])
    return addresses[0] ?? null
  }
  const resolveV6 = (hostname: string) => ask('resolve6', hostname)
  const resolve = async (hostname: string) => (await ask('resolve4', hostname)) ?? (await resolveV6(hostname))
  const sshArgv = async (options: readonly string[], hostname: string): Promise<string[]> => {
    const address = await resolve(hostname)
    if (address === null) throw new Error(`${hostname} does not resolve`)
    return [
      ...['ssh', ...options, '-l', 'agent', '-i', keyFile, '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=60'],
      ...['-o', `HostKeyAlias=${hostname}`, '-o', `UserKnownHostsFile=${join(directory, 'known_hosts')}`],
      ...['-o', 'StrictHostKeyChecking=accept-new', '-o', 'IdentitiesOnly=yes', address, '--'],
    ]
  }
  const self: Appliance = {
    use: path => {
      program = path
    },
    stateDir,
    directory,
    url,
    publicKey,
    pid: () => daemon?.pid ?? 0,
    start: async held => {
      const startedMs = performance.now()
      let respondedMs: number | null = null
      // At its end, as two descriptors of one file would write over each other; and what was logged before stays.
      const output = openSync(logFile, 'a')
      daemon = Bun.spawn([...(held === undefined ? [] : stopped), ...within, program, 'serve'], {
        env,
        stdin: 'ignore',
        stdout: output,
        stderr: output,
      })
      closeSync(output)
      const running = daemon
      await held?.(running.pid)
      await until('the daemon responds', startMs, async () => {
        if (running.exitCode !== null || running.signalCode !== null)
          throw new Error(`the daemon ended: ${readFileSync(logFile, 'utf8')}`)
        if (!existsSync(join(stateDir, 'ca/ca.pem'))) return false
        const isThere = await fetch(`${url}/openapi.json`, {
          tls: { ca: readFileSync(join(stateDir, 'ca/ca.pem'), 'utf8') },
        }).then(
          response => response.ok,
          () => false,
        )
        if (isThere) respondedMs ??= performance.now() - startedMs
        return isThere && operatorResponds(join(stateDir, 'admin.sock'))
      })
      return respondedMs ?? 0
    },
    stop: () => end('SIGTERM'),
    kill: async () => {
      await end('SIGKILL')
    },
    cli,
    admin: async <T>(...argv: string[]) => {
      const { exitCode, stdout, stderr } = await cli(...argv, '--json')
      if (exitCode !== 0) throw new Error(`strongroom ${argv.join(' ')}: ${exitCode}: ${stdout}${stderr}`)
      return JSON.parse(stdout) as T
    },
    http: async <T>(
      method: string,
      path: string,
      { key, body, headers }: { key?: string; body?: unknown; headers?: Record<string, string> } = {},
    ) => {
      const response = await fetch(url + path, {
        method,
        tls: { ca: readFileSync(join(stateDir, 'ca/ca.pem'), 'utf8') },
        headers: {
          ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
          ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      return { status: response.status, headers: response.headers, body: (await response.json()) as T }
    },
    resolve,
    resolveV6,
    ssh: (hostname, command) => self.sshWith([], hostname, command),
    sshWith: async (options, hostname, command, input) =>
      exec([...(await sshArgv(options, hostname)), ...command], { check: false, input }),
    sshSession: (hostname, command, ...options) => openSession(sshArgv(options, hostname), command),
    log: () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : ''),
    [Symbol.asyncDispose]: async () => {
      await end('SIGKILL')
      // VMs outlive the daemon, so a failed test may leave some.
      for (const pid of qemuProcesses(stateDir)) process.kill(pid, 'SIGKILL')
      rmSync(directory, { recursive: true, force: true })
    },
  }
  return self
}

/** Waits for SIGCONT, then runs its arguments under the same pid. */
const stopped = ['sh', '-c', 'kill -STOP $$; exec "$@"', 'sh']

/** The operator's socket comes last, after all services. Behind a socket that a killed daemon left there is nobody. */
function operatorResponds(socket: string): Promise<boolean> {
  return fetch('http://operator/', { unix: socket }).then(
    () => true,
    () => false,
  )
}

function configText(address: string, image: string, lines: Readonly<Record<string, string>>): string {
  const tables: Record<string, string> = {
    listen: `instances = "${address}:8441"\ndns = "${address}:53"`,
    vm: `image_dir = ${JSON.stringify(image)}`,
    network: 'sample_interval_ms = 500',
    // Tests poll a hundred times a second; limits have tests of their own.
    instances: 'requests_per_minute = 1_000_000',
  }
  for (const [table, more] of Object.entries(lines)) tables[table] = `${tables[table] ?? ''}\n${more}`
  const top = 'domain = "agents.test"\nlog_level = "debug"\nplatform = "tcg"\n'
  return (
    top +
    Object.entries(tables)
      .map(([name, lines]) => `[${name}]\n${lines}\n`)
      .join('')
  )
}

/** Where the guest image is; built when it is not cached. */
export async function imageDir(): Promise<string> {
  return process.env.STRONGROOM_IMAGE_DIR || buildCachedImage('instance')
}

function openSession(argv: Promise<string[]>, command: string): Session {
  let output = ''
  const started = argv.then(words => {
    const child = Bun.spawn([...words, command], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' })
    void (async () => {
      for await (const chunk of child.stdout) output += Buffer.from(chunk).toString()
    })()
    return child
  })
  return {
    type: text => {
      void started.then(async child => {
        child.stdin.write(text)
        await child.stdin.flush()
      })
    },
    printed: (text, timeoutMs = 60_000) =>
      until(`the session prints ${JSON.stringify(text)}`, timeoutMs, () => output.includes(text)),
    exited: started.then(child => child.exited),
  }
}

async function exec(
  argv: readonly string[],
  options: {
    env?: Record<string, string | undefined>
    check?: boolean
    timeoutMs?: number
    input?: string | undefined
  } = {},
): Promise<CliResult> {
  const { env = process.env, check = true, timeoutMs = commandMs, input } = options
  const stdin = input === undefined ? 'ignore' : Buffer.from(input)
  const child = Bun.spawn([...argv], { env, stdin, stdout: 'pipe', stderr: 'pipe', timeout: timeoutMs })
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (check && exitCode !== 0) throw new Error(`${argv.join(' ')}: ${exitCode}: ${stderr}`)
  return { exitCode, stdout, stderr }
}
