// A command in a root of its own: bubblewrap (bwrap(1)) under an unprivileged user. Effects: starts and ends processes.
//
// It sees a read-only root and what is mounted over it, no network but what a mounted socket gives, no process but its own, no capability,
// no way to new privileges or to further user namespaces. It ends with us, however we end (PR_SET_PDEATHSIG).
//
// Memory is bounded by a scope of systemd's where systemd runs: all of its processes together, whatever they use it for. Elsewhere by
// RLIMIT_DATA (getrlimit(2)): each process for itself, private memory only, so that a program that means harm can still get more.

import { Fault, messageOf } from '../base/fault.ts'
import type { Owner } from '../linux/files.ts'
import { createLineSplitter } from '../linux/lines.ts'
import { isUnderSystemd, scopeArgv } from '../linux/process.ts'

export type SandboxMount =
  | { readonly kind: 'bind'; readonly source: string; readonly target: string; readonly writable: boolean }
  | { readonly kind: 'tmpfs'; readonly target: string; readonly sizeBytes: number }
  /** Makes an earlier tmpfs read-only, once its mount points are there. */
  | { readonly kind: 'seal'; readonly target: string }

export type Sandbox = {
  /** Directory that becomes `/`, read-only; the user must reach it. */
  readonly root: string
  /** In this order; every target is there already, or lies on a tmpfs. */
  readonly mounts: readonly SandboxMount[]
  readonly user: Owner
  readonly env: Readonly<Record<string, string>>
  readonly limits: SandboxLimits
}

export type SandboxLimits = {
  /** 'any': no bound. */
  readonly memoryMiBMax: number | 'any'
  /** Threads of all processes together; in a scope only. */
  readonly tasksMax: number
}

export type SandboxOutput = {
  /** A line of stdout or stderr, without its end; a longer one is only mentioned. */
  readonly onLine: (line: string) => void
  readonly lineBytesMax: number
}

export type SandboxProcess = {
  readonly pid: number
  /** When no process of it can do anything any more. Exit code, or 128 + signal number. */
  readonly exited: Promise<number>
  /** Kills every process of it; resolves as `exited` does. Idempotent. */
  readonly kill: () => Promise<void>
}

export type StartSandboxed = (sandbox: Sandbox, command: readonly string[], output: SandboxOutput) => SandboxProcess

/** Starts the command. Fault host.unsupported without util-linux or bwrap(1), host.command_failed when it cannot be started. */
export const startSandboxed: StartSandboxed = (sandbox, command, output) => {
  const argv = sandboxArgv(sandbox, command, { systemd: isUnderSystemd() })
  for (const [tool, package_] of Object.entries(packageOf)) {
    if (Bun.which(tool, { PATH: toolPath }) === null) {
      throw new Fault('host.unsupported', `${tool} is not installed; Debian has it in ${package_}`)
    }
  }
  const child = spawn(argv)
  // The inner processes hold these pipes: their end says that all of them have ended, not only the outermost.
  const drained = Promise.all([readLines(child.stdout, output), readLines(child.stderr, output)])
  const exited = Promise.all([child.exited, drained]).then(([exitCode]) => exitCode)
  return {
    pid: child.pid,
    exited,
    kill: async () => {
      child.kill('SIGKILL')
      await exited
    },
  }
}

const packageOf = { choom: 'util-linux', prlimit: 'util-linux', setpriv: 'util-linux', bwrap: 'bubblewrap' }

const toolPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** User and group within; outside they are the sandbox's user. */
const innerId = '65534'

/** When memory runs out the kernel is to take this before the daemon and its VMs (proc_pid_oom_score_adj(5)). */
const oomScoreAdjust = '900'

/** The whole command line: limits, then become the user, then build the sandbox, so that not even bwrap runs as root. */
export function sandboxArgv(
  sandbox: Sandbox,
  command: readonly string[],
  { systemd }: { readonly systemd: boolean },
): string[] {
  const { memoryMiBMax, tasksMax } = sandbox.limits
  const inner = ['choom', '--adjust', oomScoreAdjust, '--', ...isolatedArgv(sandbox, command)]
  if (systemd) {
    const memory = memoryMiBMax === 'any' ? [] : [`MemoryMax=${memoryMiBMax}M`, 'MemorySwapMax=0']
    return scopeArgv(inner, null, [...memory, `TasksMax=${tasksMax}`])
  }
  return memoryMiBMax === 'any' ? inner : ['prlimit', `--data=${memoryMiBMax * bytesPerMiB}`, '--', ...inner]
}

const bytesPerMiB = 1_048_576

function isolatedArgv(sandbox: Sandbox, command: readonly string[]): string[] {
  return [
    ...['setpriv', `--reuid=${sandbox.user.uid}`, `--regid=${sandbox.user.gid}`, '--clear-groups', '--no-new-privs'],
    ...['--', 'bwrap'],
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-net', '--unshare-cgroup'],
    ...['--disable-userns', '--die-with-parent', '--new-session', '--cap-drop', 'ALL'],
    // No name of its own: sethostname(2) fails under ProtectHostname= of systemd.exec(5).
    ...['--uid', innerId, '--gid', innerId, '--clearenv'],
    ...Object.entries(sandbox.env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--ro-bind', sandbox.root, '/', '--proc', '/proc', '--dev', '/dev'],
    // A tmpfs of no set size.
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
    case 'seal':
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

async function readLines(stream: ReadableStream<Uint8Array>, { onLine, lineBytesMax }: SandboxOutput): Promise<void> {
  const splitter = createLineSplitter({
    lineBytesMax,
    onLine: line => onLine(Buffer.from(line).toString('utf8')),
    onOverlong: () => onLine(`(a line of more than ${lineBytesMax} bytes)`),
  })
  for await (const chunk of stream) splitter.push(chunk)
}
