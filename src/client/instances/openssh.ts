// ssh and scp of OpenSSH with exactly one verified host key. Effects: a process, a temporary file.

import { lookup } from 'node:dns/promises'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import type { KnownHost } from '../../verifier/ssh-key.ts'

/** The user account in every instance. */
export const defaultUser = 'agent'

export type Connection = {
  readonly user: string
  readonly knownHost: KnownHost
  /** File of the private key, or of the public one whose private half ssh-agent has; null for what ssh tries itself. */
  readonly identity?: string | null
  /** Address to connect to instead of that of the name; null to resolve the name. */
  readonly address?: string | null
}

export type Login = Connection & {
  /** Options of ssh, and the command to run. */
  readonly args: readonly string[]
  /** Standard input of the command; default: that of this program. */
  readonly input?: string | ReadableStream<Uint8Array>
}

export type Copy = Connection & {
  readonly isRecursive: boolean
  /** Further options of scp. */
  readonly args: readonly string[]
  readonly source: CopyEnd
  readonly destination: CopyEnd
}

export type CopyEnd =
  | { readonly kind: 'here'; readonly path: string }
  | { readonly kind: 'there'; readonly path: string }

/** Runs ssh and returns its exit code; for a signal, 128 plus its number, as in shells. */
export function runSsh(run: Run, login: Login): Promise<number> {
  return runWith(run, login, file => sshArguments(login, file))
}

/** Runs scp, and returns as `runSsh`. */
export function runScp(run: Run, copy: Copy): Promise<number> {
  return runWith(run, copy, file => scpArguments(copy, file))
}

export type Forward = Login & {
  /** Address and port that ssh opens here, and those in the instance. */
  readonly local: string
  readonly remote: string
  /** Called once ssh listens. */
  readonly onReady: () => Promise<void>
}

/** Forwards a local port until ssh ends or a signal comes, and returns as `runSsh`. */
export function runForward(run: Run, forward: Forward): Promise<number> {
  return runWith(run, forward, file => forwardArguments(forward, file), forward.onReady)
}

export type SshAnswer = { readonly code: number; readonly stdout: string }

/** Runs ssh with this standard input. Throws Fault host.command_failed, also for an output beyond `bytesMax`. */
export function askSsh({ io }: Run, login: Login, { input, bytesMax, timeoutMs }: SshQuestion): Promise<SshAnswer> {
  return withKnownHosts(login.knownHost, async file => {
    const child = start(sshArguments(login, file), io.env, { stdin: Buffer.from(input), stdout: 'pipe' })
    const timer = setTimeout(() => child.kill('SIGTERM'), timeoutMs)
    try {
      const stdout = await textOf(child.stdout, bytesMax)
      if (stdout === null) throw new Fault('host.command_failed', `ssh: more than ${bytesMax} bytes of output`)
      return { stdout, code: await child.exited }
    } finally {
      clearTimeout(timer)
      child.kill('SIGTERM')
    }
  })
}

export type SshQuestion = { readonly input: string; readonly bytesMax: number; readonly timeoutMs: number }

/** Null if there is more. */
async function textOf(stream: ReadableStream<Uint8Array>, bytesMax: number): Promise<string | null> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    sizeBytes += chunk.length
    if (sizeBytes > bytesMax) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

type Starting = Pick<Login, 'knownHost' | 'input'>

/** `onReady`: called after the first output on stdout, which then belongs to this process. */
function runWith(
  { io }: Run,
  { knownHost, input }: Starting,
  argvOf: (file: string) => string[],
  onReady: (() => Promise<void>) | null = null,
): Promise<number> {
  return withKnownHosts(knownHost, async file => {
    const stdin = input === undefined ? 'inherit' : typeof input === 'string' ? Buffer.from(input) : input
    const child = start(argvOf(file), io.env, { stdin, stdout: onReady === null ? 'inherit' : 'pipe' })
    using listening = new DisposableStack()
    const on = (...listener: Parameters<typeof io.onSignal>) => listening.defer(io.onSignal(...listener))
    // The terminal sends SIGINT to the child too, which handles it.
    on('SIGINT', () => {
      if (onReady !== null) child.kill('SIGTERM')
    })
    on('SIGTERM', () => child.kill('SIGTERM'))
    on('SIGHUP', () => child.kill('SIGHUP'))
    if (onReady !== null && child.stdout instanceof ReadableStream) {
      for await (const _ of child.stdout) {
        await onReady()
        break
      }
    }
    return await child.exited
  })
}

async function withKnownHosts<T>(knownHost: KnownHost, use: (file: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-ssh-'))
  try {
    const file = join(directory, 'known_hosts')
    writeFileSync(file, `${knownHost.line}\n`, { mode: 0o600 })
    return await use(file)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Starts a program of OpenSSH. Fault host.command_failed. */
export function start<In extends 'inherit' | Buffer | ReadableStream<Uint8Array>, Out extends 'inherit' | 'pipe'>(
  argv: readonly string[],
  env: Run['io']['env'],
  { stdin, stdout }: { readonly stdin: In; readonly stdout: Out },
): Bun.Subprocess<In, Out, 'inherit'> {
  try {
    return Bun.spawn<In, Out, 'inherit'>([...argv], { stdin, stdout, stderr: 'inherit', env })
  } catch (error) {
    const [program = ''] = argv
    throw new AdvisedFault('host.command_failed', `${program}: ${messageOf(error)}`, {
      remedy: `install OpenSSH, and see that ${program} is in the PATH`,
    })
  }
}

export function sshArguments(login: Login, knownHostsFile: string): string[] {
  const { user, knownHost, args } = login
  return ['ssh', ...ourOptions(login, knownHostsFile), `${user}@${knownHost.hostname}`, ...args]
}

/** Returns the command line of a forwarding, which prints a line on stdout once it listens. */
export function forwardArguments(forward: Omit<Forward, 'onReady'>, knownHostsFile: string): string[] {
  const { user, knownHost, args, local, remote } = forward
  const options = {
    ExitOnForwardFailure: 'yes',
    // ssh runs it in this machine's shell after it has opened the port (ssh_config(5)).
    PermitLocalCommand: 'yes',
    LocalCommand: 'echo ready',
    // A VM that no longer answers ends the forwarding after a minute.
    ServerAliveInterval: '15',
    ServerAliveCountMax: '4',
  }
  const more = Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  const words = ['-N', '-T', '-L', `${local}:${remote}`, `${user}@${knownHost.hostname}`]
  return ['ssh', ...ourOptions(forward, knownHostsFile), ...more, ...words, ...args]
}

/**
 * Returns the command line, with -s for SFTP: in scp's older protocol the other side chooses the file names. A later -s
 * overrides -O.
 */
export function scpArguments(copy: Copy, knownHostsFile: string): string[] {
  const { user, knownHost, isRecursive, args, source, destination } = copy
  const operand = ({ kind, path }: CopyEnd) =>
    kind === 'there' ? `${user}@${knownHost.hostname}:${path}` : localOperand(path)
  return [
    ...['scp', ...ourOptions(copy, knownHostsFile), ...(isRecursive ? ['-r'] : []), ...args],
    ...['-s', '--', operand(source), operand(destination)],
  ]
}

/** Options of ssh(1) with a value. */
const valued = 'BbcDEeFIiJLlmOoPpQRSWw'

/** Refuses -S and -M, which override ControlPath and ControlMaster of `-o`. Fault invalid_request. */
export function refuseSharing(args: readonly string[]): void {
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? ''
    // The command begins here.
    if (!/^-./.test(arg) || arg === '--') return
    const flags = [...arg.slice(1)]
    const end = flags.findIndex(flag => valued.includes(flag))
    const shared = (end === -1 ? flags : flags.slice(0, end + 1)).find(flag => flag === 'S' || flag === 'M')
    if (shared !== undefined) {
      throw new InputFault(`-${shared} of ssh shares a connection, whose host key was not verified now`, {
        param: 'ssh-arguments',
        remedy: `leave out -${shared}`,
      })
    }
    if (end === flags.length - 1) at += 1
  }
}

/** Returns the options of ssh(1) before the command. */
export function optionsOf(args: readonly string[]): readonly string[] {
  let at = 0
  for (; at < args.length; at += 1) {
    const arg = args[at] ?? ''
    if (!/^-./.test(arg) || arg === '--') break
    const letter = [...arg.slice(1)].findIndex(flag => valued.includes(flag))
    if (letter !== -1 && letter === arg.length - 2) at += 1
  }
  return args.slice(0, at)
}

/** Returns the path as a local file for scp, which takes `a:b` for another host and `-a` for an option. */
function localOperand(path: string): string {
  return path.startsWith('/') || path.startsWith('./') || path.startsWith('../') ? path : `./${path}`
}

/**
 * Returns the options that come first: ssh uses the first value of each (ssh_config(5)), so neither arguments nor the
 * user's configuration override them. This file is the only source of host keys, and no connection is shared.
 */
function ourOptions({ knownHost, identity, address }: Connection, knownHostsFile: string): string[] {
  const options = {
    StrictHostKeyChecking: 'yes',
    // A single name, even with blanks, and without ssh's tokens.
    UserKnownHostsFile: `"${knownHostsFile.replaceAll('%', '%%')}"`,
    GlobalKnownHostsFile: '/dev/null',
    KnownHostsCommand: 'none',
    // The name in the file, even if the configuration has another address or port for it.
    HostKeyAlias: knownHost.hostname,
    HostKeyAlgorithms: 'ssh-ed25519',
    VerifyHostKeyDNS: 'no',
    UpdateHostKeys: 'no',
    CheckHostIP: 'no',
    NoHostAuthenticationForLocalhost: 'no',
    ControlMaster: 'no',
    ControlPath: 'none',
    ...(address == null ? {} : { HostName: address }),
  }
  const ours = Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  return [...ours, ...(identity == null ? [] : ['-i', identity])]
}

/** Returns the identity file for a public key's file: the private key, or the public one for ssh-agent. */
export function identityOf(publicKeyFile: string | undefined): string | null {
  if (publicKeyFile === undefined || !publicKeyFile.startsWith('/') || !existsSync(publicKeyFile)) return null
  const file = publicKeyFile.replace(/\.pub$/, '')
  return existsSync(file) ? file : publicKeyFile
}

const lookupTimeoutMs = 5_000

/**
 * Returns the address of the verified claim if the name does not resolve here; null if it does, or if an argument has
 * an address of its own.
 */
export async function addressFor(
  hostname: string,
  claimed: string | null,
  args: readonly string[],
): Promise<string | null> {
  if (claimed === null || args.some(arg => /^(?:-o)?\s*hostname[\s=]/i.test(arg) || /^-[FJW]/.test(arg))) return null
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no response in time')), lookupTimeoutMs)
  })
  try {
    await Promise.race([lookup(hostname), late])
    return null
  } catch {
    return claimed
  } finally {
    clearTimeout(timer)
  }
}
