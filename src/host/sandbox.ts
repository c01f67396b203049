// Runs a command in a separate root: bubblewrap (bwrap(1)) under an unprivileged user. Effects: starts and ends
// processes.
//
// The command sees a read-only root and what is mounted over it, no network except through a mounted socket, no other
// processes. It has no capabilities, and cannot get new privileges or further user namespaces. It ends with this
// process (PR_SET_PDEATHSIG).
//
// Under systemd, a scope bounds the memory of all its processes together. Elsewhere RLIMIT_DATA (getrlimit(2)) bounds
// only the private memory of each process, so a hostile program can get more.

import { systemClock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { TokenBucket } from '../base/work/token-bucket.ts'
import type { Owner } from '../linux/files.ts'
import { createLineSplitter } from '../linux/lines.ts'
import { piecesOf } from '../linux/output-pieces.ts'
import { childrenOf, type RunningProcess } from '../linux/process/running.ts'
import { isUnderSystemd, scopeArgv } from '../linux/process/scope.ts'
import { readStat } from '../linux/stat.ts'

export type SandboxMount =
  | { readonly kind: 'bind'; readonly source: string; readonly target: string; readonly writable: boolean }
  | { readonly kind: 'tmpfs'; readonly target: string; readonly sizeBytes: number }
  /** Makes an earlier tmpfs read-only, after its mount points were created. */
  | { readonly kind: 'read-only'; readonly target: string }

export type Sandbox = {
  /** Directory that becomes `/`, read-only; the user must have access to it. */
  readonly root: string
  /** In this order; every target already exists, or is on a tmpfs. */
  readonly mounts: readonly SandboxMount[]
  readonly user: Owner
  readonly env: Readonly<Record<string, string>>
  readonly limits: SandboxLimits
}

export type SandboxLimits = {
  /** 'any' means no bound. */
  readonly memoryMiBMax: number | 'any'
  /** Maximum number of threads of all processes together; only in a scope. */
  readonly tasksMax: number
}

export type SandboxOutput = {
  /** Receives a line of stdout or stderr, without its LF; a note in place of a line over `lineBytesMax`. */
  readonly onLine: (line: string) => void
  readonly lineBytesMax: number
}

export type SandboxProcess = {
  readonly pid: number
  /**
   * Resolves when all of its processes have closed their output, and it is read, with the exit code, or 128 + signal
   * number.
   */
  readonly exited: Promise<number>
  /** Kills all of its processes; resolves when none is left. Idempotent. Throws Fault host.command_timeout. */
  readonly kill: () => Promise<void>
}

export type StartSandboxed = (sandbox: Sandbox, command: readonly string[], output: SandboxOutput) => SandboxProcess

/** Starts the command. Faults: host.unsupported (no util-linux or bwrap(1)), host.command_failed. */
export const startSandboxed: StartSandboxed = (sandbox, command, output) => {
  const argv = sandboxArgv(sandbox, command, { systemd: isUnderSystemd() })
  for (const [tool, package_] of Object.entries(packageOf)) {
    if (Bun.which(tool, { PATH: toolPath }) === null) {
      throw new Fault('host.unsupported', `${tool} is not installed; Debian has it in ${package_}`)
    }
  }
  const child = spawn(argv)
  // All of the processes hold these pipes: when the pipes end, all processes have ended, not only the outermost one.
  const drained = Promise.all([child.stdout, child.stderr].map(stream => readLines(stream, output, child)))
  const exited = Promise.all([child.exited, drained]).then(([exitCode]) => exitCode)
  const end = async () => {
    // The first process of their namespace, which ends after all others (pid_namespaces(7)). A pipe ends before the
    // process that held it does.
    const first = isEnded(child) ? [] : childrenOf(child.pid)
    child.kill('SIGKILL')
    await exited
    for (const process of first) await gone(process)
  }
  let ending: Promise<void> | null = null
  return {
    pid: child.pid,
    exited,
    kill: () => {
      ending ??= end()
      return ending
    },
  }
}

type Ending = Pick<Bun.Subprocess, 'exitCode' | 'signalCode'>

function isEnded({ exitCode, signalCode }: Ending): boolean {
  return exitCode !== null || signalCode !== null
}

/** Waits until the process has ended. Throws Fault host.command_timeout. */
async function gone({ pid, startTicks }: RunningProcess): Promise<void> {
  const deadlineMs = systemClock.monotonicMs() + goneTimeoutMs
  while (readStat(pid)?.startTicks === startTicks) {
    if (systemClock.monotonicMs() >= deadlineMs) {
      throw new Fault('host.command_timeout', `process ${pid} of the sandbox does not end`)
    }
    await systemClock.sleep(gonePollMs)
  }
}

const goneTimeoutMs = 30_000
const gonePollMs = 1

/** Debian's package of each tool. */
const packageOf = { choom: 'util-linux', prlimit: 'util-linux', setpriv: 'util-linux', bwrap: 'bubblewrap' }

const toolPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** User and group inside; outside they are the sandbox's user. */
const innerId = '65534'

/** When memory runs out, the kernel kills this before the daemon and its VMs (proc_pid_oom_score_adj(5)). */
const oomScoreAdjust = '900'

/** Returns the whole command line: limits, then the user, then the sandbox, so that not even bwrap runs as root. */
export function sandboxArgv(
  sandbox: Sandbox,
  command: readonly string[],
  { systemd }: { readonly systemd: boolean },
): string[] {
  const { memoryMiBMax, tasksMax } = sandbox.limits
  const data = systemd || memoryMiBMax === 'any' ? [] : [`--data=${memoryMiBMax * bytesPerMiB}`]
  // No memory image is written to the disk.
  const limits = ['prlimit', '--core=0', '--memlock=0', ...data, '--']
  const inner = [...limits, 'choom', '--adjust', oomScoreAdjust, '--', ...isolatedArgv(sandbox, command)]
  if (systemd) {
    const memory = memoryMiBMax === 'any' ? [] : [`MemoryMax=${memoryMiBMax}M`, 'MemorySwapMax=0']
    return scopeArgv(inner, null, ['Slice=strongroom.slice', ...memory, `TasksMax=${tasksMax}`])
  }
  return inner
}

const bytesPerMiB = 1_048_576

function isolatedArgv(sandbox: Sandbox, command: readonly string[]): string[] {
  return [
    ...['setpriv', `--reuid=${sandbox.user.uid}`, `--regid=${sandbox.user.gid}`, '--clear-groups', '--no-new-privs'],
    ...['--', 'bwrap'],
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-net', '--unshare-cgroup'],
    ...['--disable-userns', '--die-with-parent', '--new-session', '--cap-drop', 'ALL'],
    // No separate host name: sethostname(2) fails under ProtectHostname= of systemd.exec(5).
    ...['--uid', innerId, '--gid', innerId, '--clearenv'],
    ...Object.entries(sandbox.env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--ro-bind', sandbox.root, '/', '--proc', '/proc', '--dev', '/dev'],
    // /dev is a tmpfs without a size limit.
    ...['--remount-ro', '/dev'],
    ...sandbox.mounts.flatMap(mountArguments),
    ...['--chdir', '/', '--', ...command],
  ]
}

function mountArguments(mount: SandboxMount): string[] {
  switch (mount.kind) {
    case 'bind':
      return [mount.writable ? '--bind' : '--ro-bind', mount.source, mount.target]
    case 'tmpfs':
      return ['--size', String(mount.sizeBytes), '--tmpfs', mount.target]
    case 'read-only':
      return ['--remount-ro', mount.target]
  }
}

function spawn(argv: readonly string[]) {
  try {
    return Bun.spawn([...argv], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      env: { PATH: toolPath, LC_ALL: 'C' },
      cwd: '/',
      detached: true,
    })
  } catch (error) {
    throw new Fault('host.command_failed', `${argv[0]}: ${messageOf(error)}`, { cause: error })
  }
}

async function readLines(
  stream: ReadableStream<Uint8Array>,
  { onLine, lineBytesMax }: SandboxOutput,
  writer: Ending,
): Promise<void> {
  const allowance = new TokenBucket(outputBytesPerSecondMax, systemClock)
  const splitter = createLineSplitter({
    lineBytesMax,
    onLine: line => onLine(Buffer.from(line).toString('utf8')),
    onOverlong: () => onLine(`(a line of more than ${lineBytesMax} bytes)`),
  })
  let last = lf
  for await (const piece of piecesOf(stream)) {
    splitter.push(piece)
    last = piece.at(-1) ?? last
    const pauseMs = allowance.take(piece.length)
    // A writer that has ended leaves little in its pipe.
    if (pauseMs > 0 && !isEnded(writer)) await systemClock.sleep(pauseMs)
  }
  // The last line may lack its LF.
  if (last !== lf) splitter.push(Uint8Array.of(lf))
}

const lf = 0x0a

/** A command that writes more waits for us: in lines of one character, this many take a twentieth of this thread. */
const outputBytesPerSecondMax = 128 * 1024
