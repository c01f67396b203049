// A small Debian with systemd, booted in a container, for tests of systemd units and packages. Effects: processes, a
// control group named `srt-<pid>-<n>`; needs root.
//
// The container is that of systemd-nspawn(1): the kernel is this machine's, everything else is the tree's. It shares
// the network namespace of the test, which must be its own (`inOwnNetns`), so that the test reaches its listeners. Its
// writes go to memory. It dies with the test: the first process of its process namespace ends with ours
// (PR_SET_PDEATHSIG). A crash may leave an empty control group and an empty directory, which the next boot removes.
//
// Without control group v2 and controllers on this machine, MemoryMax= and TasksMax= of units are accepted and bound
// nothing; device policies hold everywhere (they are BPF programs).

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Subprocess } from 'bun'
import { messageOf } from '../../../src/base/fault.ts'
import { until } from '../until.ts'
import { type Executed, outputOf } from './output.ts'
import { debianTree } from './tree.ts'

export type BootedDebian = AsyncDisposable & {
  /** Its root directory as we see it: files in it can be read and written. */
  readonly root: string
  /** A directory of this machine for what the test keeps about it; goes with it. */
  readonly scratch: string
  /** Runs a command in it to its end, as root. Throws when it fails, unless `check` is false. */
  readonly exec: (argv: readonly string[], options?: ExecOptions) => Promise<Executed>
  /** The command line of this machine that runs a command in it, as root. */
  readonly argv: (argv: readonly string[]) => string[]
  /** A unit's log since its boot, read at once so that it can explain a failure. */
  readonly journal: (unit: string) => string
  /**
   * `systemctl reboot`, until systemd has started everything again. Files stay, except in /run and /tmp; /proc has
   * another boot id.
   * The kernel does not restart, so state that a reboot clears is removed here: nftables, conntrack, and interfaces
   * with their routes.
   */
  readonly reboot: () => Promise<void>
}

export type ExecOptions = { readonly stdin?: string; readonly timeoutMs?: number; readonly check?: boolean }

export type BootOptions = {
  /** Files and directories of this machine that it sees under the same path, read-only. */
  readonly readOnly?: readonly string[]
  /** Device nodes of this machine that it has. */
  readonly devices?: readonly string[]
  /** Directory of its tree; that of `debianTree` unless given. */
  readonly tree?: string
}

const bootTimeoutMs = 90_000
const execTimeoutMs = 60_000

/** Boots it and waits until systemd has started everything. `await using debian = await bootDebian()`. */
export async function bootDebian({
  readOnly = [],
  devices = [],
  tree: given,
}: BootOptions = {}): Promise<BootedDebian> {
  const namespace = Bun.spawnSync(['ip', 'netns', 'identify', String(process.pid)])
    .stdout.toString()
    .trim()
  if (!namespace.startsWith('srt-')) throw new Error('the container shares our network: run the test inside inOwnNetns')
  removeStale()
  const tree = given ?? (await debianTree())
  count += 1
  const name = `srt-${process.pid}-${count}`
  const scratch = mkdtempSync(join(tmpdir(), `${name}-debian-`))
  living.set(name, scratch)
  const mounts = [
    ...readOnly.map(path => `--bind-ro=${path}`),
    // A device is bound by its node; nspawn's own device policy needs systemd on the outside.
    ...devices.map(path => `--bind=${path}`),
  ]
  const container = Bun.spawn(
    [
      ...['setpriv', '--pdeathsig', 'KILL', '--'],
      ...['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', '--mount', '--propagation', 'private', '--'],
      ...['sh', '-euc', bootScript, 'sh', name, tree, scratch, 'systemd-nspawn'],
      ...['--quiet', '--register=no', '--keep-unit', '--link-journal=no', '--console=pipe', '--resolv-conf=off'],
      ...['--boot', `--machine=${name}`, `--directory=${scratch}/root`, '--network-namespace-path=/proc/self/ns/net'],
      // Capabilities and calls that systemd has on a machine of its own, as far as the unit asks for them.
      ...['--capability=CAP_NET_ADMIN,CAP_IPC_LOCK', '--system-call-filter=@keyring bpf'],
      ...mounts,
    ],
    {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      // While it boots, it changes settings of its network only: the others are this machine's.
      env: { ...process.env, SYSTEMD_NSPAWN_API_VFS_WRITABLE: 'network' },
    },
  )
  const output = Promise.all([container.stdout.text(), container.stderr.text()])
  const close = async () => {
    container.kill('SIGKILL')
    await container.exited
    endContainer(name)
  }
  const boot = async (before: number | null): Promise<number> => {
    let found: number | null = null
    let state = ''
    const isUp = async () => {
      if (container.exitCode !== null) throw new Error(`it ended: ${(await output).join('')}`)
      for (const command of commands) command.kill('SIGCONT')
      found = systemdOf(container.pid)
      if (found === null || found === before) return false
      state = (await execInside(found, ['systemctl', 'is-system-running'])).stdout.trim()
      return state === 'running' || state === 'degraded'
    }
    try {
      await until(`systemd in ${name} has started everything`, bootTimeoutMs, isUp)
    } catch (error) {
      const pending = found === null ? 'no systemd is there' : await pendingIn(found)
      throw new Error(`${messageOf(error)}: ${found === before ? 'it has not gone down: ' : ''}${pending}`, {
        cause: error,
      })
    }
    const pid = found ?? 0
    if (state !== 'running') {
      throw new Error((await execInside(pid, ['systemctl', '--failed', '--no-pager'])).stdout)
    }
    // Writable as on a machine of its own: bwrap(1) writes /proc/sys/user of its own namespace.
    await execInside(pid, ['mount', '-o', 'remount,bind,rw', '/proc/sys'])
    return pid
  }
  try {
    let pid = await boot(null)
    return {
      get root() {
        return `/proc/${pid}/root`
      },
      scratch,
      exec: async (argv, options = {}) => {
        const executed = await execInside(pid, argv, options)
        if (options.check !== false && executed.exitCode !== 0) {
          throw new Error(`${argv.join(' ')}: ${executed.exitCode}: ${executed.stderr}${executed.stdout}`)
        }
        return executed
      },
      argv: argv => insideArgv(pid, argv),
      journal: unit => {
        const argv = ['journalctl', '--no-pager', '--output=cat', '--boot', `--unit=${unit}`]
        return Bun.spawnSync(insideArgv(pid, argv), { timeout: execTimeoutMs }).stdout.toString()
      },
      reboot: async () => {
        // It may be gone before it can say that it will go.
        await execInside(pid, ['systemctl', 'reboot'])
        pid = await boot(pid)
      },
      [Symbol.asyncDispose]: close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/**
 * Commands that run inside. A shutdown stops every process before it ends them; nsenter(1) then stops as well, and the
 * shutdown waits 90 s for its child, a zombie that only nsenter could reap.
 */
const commands = new Set<Subprocess>()

/** Jobs that systemd waits for, the end of its journal, and processes that a shutdown waits for. */
async function pendingIn(pid: number): Promise<string> {
  const processes = await execInside(pid, ['ps', '-eo', 'pid,ppid,stat,ignored,args'])
  const jobs = await execInside(pid, ['systemctl', 'list-jobs', '--no-pager'])
  const journal = await execInside(pid, ['journalctl', '--boot', '--no-pager', '--lines=60'])
  return `${jobs.stdout}${jobs.stderr}${journal.stdout}${processes.stdout}`
}

let count = 0
/** Name of the control group, and its directory for the mounts. */
const living = new Map<string, string>()

// Run in a mount namespace of its own, so that nothing of this stays: a root whose changes lie in memory, a place for
// nspawn's own state, and the second version of control groups alone, as on any machine of today. nspawn ends with 133
// where the container reboots: then it is started again, in a control group of its own, after the network has been
// emptied.
const bootScript = `
name=$1 tree=$2 scratch=$3
shift 3
mount -t tmpfs -o mode=0755 none "$scratch"
mkdir "$scratch/root" "$scratch/upper" "$scratch/work"
mount -t overlay -o "lowerdir=$tree,upperdir=$scratch/upper,workdir=$scratch/work" none "$scratch/root"
mkdir -p /run/systemd/nspawn
mount -t tmpfs none /run/systemd/nspawn
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$name"
boots=0
while true; do
  boots=$((boots + 1))
  group="/sys/fs/cgroup/$name/$boots"
  mkdir "$group"
  ended=0
  sh -euc 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"' sh "$group" "$@" || ended=$?
  [ "$ended" = 133 ] || exit "$ended"
  nft flush ruleset
  conntrack --flush
  for link in $(ls /sys/class/net); do [ "$link" = lo ] || ip link delete dev "$link" || [ ! -e "/sys/class/net/$link" ]; done
done
`

function execInside(pid: number, argv: readonly string[], options: ExecOptions = {}): Promise<Executed> {
  return outputOf(insideArgv(pid, argv), options.stdin ?? '', options.timeoutMs ?? execTimeoutMs, commands)
}

function insideArgv(pid: number, argv: readonly string[]): string[] {
  return [
    ...['nsenter', `--target=${pid}`, '--mount', '--uts', '--ipc', '--net', '--pid', '--cgroup', '--'],
    ...['env', '--ignore-environment', `PATH=${path}`, 'LC_ALL=C', 'SYSTEMD_PAGER=cat', ...argv],
  ]
}

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The container's systemd: below unshare(1), the script and nspawn(1). Null while there is none. */
function systemdOf(outermost: number): number | null {
  const script = childrenOf(outermost)[0]
  const nspawn = script === undefined ? [] : childrenOf(script.pid)
  return nspawn.flatMap(({ pid }) => childrenOf(pid)).find(child => child.isFirst)?.pid ?? null
}

/** `isFirst`: number 1 of a process namespace (proc_pid_status(5), NSpid). */
function childrenOf(parent: number): { readonly pid: number; readonly isFirst: boolean }[] {
  return readdirSync('/proc').flatMap(entry => {
    if (!/^\d+$/.test(entry)) return []
    const status = readIfThere(`/proc/${entry}/status`)
    if (!new RegExp(`^PPid:\\s+${parent}$`, 'm').test(status)) return []
    return [{ pid: Number(entry), isFirst: /^NSpid:.*\s1$/m.test(status) }]
  })
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

function endContainer(name: string): void {
  const scratch = living.get(name)
  living.delete(name)
  inControlGroups(
    `
    [ ! -d "$1" ] || { echo 1 > "$1/cgroup.kill"; for i in $(seq 100); do
      grep -q 'populated 0' "$1/cgroup.events" && break; sleep 0.05; done; find "$1" -depth -type d -exec rmdir {} +; }`,
    name,
  )
  // Empty: what was mounted on it was seen in the container's mount namespace only.
  if (scratch !== undefined) rmSync(scratch, { recursive: true, force: true })
}

/** Removes control groups and directories of test processes that are gone. */
function removeStale(): void {
  for (const name of inControlGroups('ls').split('\n')) {
    if (isStale(name, /^srt-(\d+)-\d+$/)) endContainer(name)
  }
  for (const name of readdirSync(tmpdir())) {
    if (isStale(name, /^srt-(\d+)-\d+-debian-/)) rmSync(join(tmpdir(), name), { recursive: true, force: true })
  }
}

/** The owner is a bun; another program with its number is a successor. */
function isStale(name: string, pattern: RegExp): boolean {
  const pid = pattern.exec(name)?.[1]
  return pid !== undefined && !readIfThere(`/proc/${pid}/comm`).startsWith('bun')
}

/** Runs a script where the tree of control groups is the working directory, whatever this machine has mounted where. */
function inControlGroups(script: string, ...words: string[]): string {
  const whole = `mount -t cgroup2 none /sys/fs/cgroup; cd /sys/fs/cgroup; ${script}`
  const argv = ['unshare', '--mount', '--propagation', 'private', 'sh', '-euc', whole, 'sh', ...words]
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`control groups: ${stderr.toString()}`)
  return stdout.toString()
}

process.on('exit', () => {
  for (const name of [...living.keys()]) endContainer(name)
})
