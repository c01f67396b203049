// The sandbox of a build's programs: its own root with the system read-only, and nothing else of the VM. Pure.
//
// bubblewrap (bwrap(1)) creates it as the build's own user, so there are no privileges to lose. Mount, process, IPC,
// host name and cgroup namespaces are new, and so is the network namespace except for a fetch. /dev has six devices;
// there is no /sys and no /run.

export type Bind = { readonly from: string; readonly to: string; readonly writable: boolean }

export type RootPlan = {
  /** User id of this program only. */
  readonly uid: number
  readonly network: boolean
  /**
   * Whether nested namespaces and pseudoterminals are allowed: only Nix needs them, for its own sandbox and builders.
   */
  readonly nestedNamespaces: boolean
  /** In order. A later one may be inside an earlier one. */
  readonly binds: readonly Bind[]
  /** Contains the build's own passwd, group, hosts and nsswitch.conf. */
  readonly etcDir: string
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  readonly argv: readonly string[]
}

const DEVICES = ['null', 'zero', 'full', 'random', 'urandom', 'tty'] as const
/** Parts of /etc that programs need to start, to find their compiler, and to verify certificates. */
const ETC = ['alternatives', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'ssl'] as const
const sharedMemoryBytesMax = 64 * 1024 * 1024
const hostname = 'build'

export const systemDirs = ['/usr'] as const

const deviceArgv: readonly string[] = [
  ...['--tmpfs', '/dev'],
  ...DEVICES.flatMap(name => ['--dev-bind', `/dev/${name}`, `/dev/${name}`]),
  ...['--symlink', '/proc/self/fd', '/dev/fd'],
  ...['stdin', 'stdout', 'stderr'].flatMap((name, fd) => ['--symlink', `/proc/self/fd/${fd}`, `/dev/${name}`]),
  ...['--perms', '1777', '--size', String(sharedMemoryBytesMax), '--tmpfs', '/dev/shm', '--remount-ro', '/dev'],
]

const bindArgv = ({ from, to, writable }: Bind) => [writable ? '--bind' : '--ro-bind', from, to]

/** Returns argv of bwrap(1). */
export function rootArgv(plan: RootPlan): string[] {
  return [
    'bwrap',
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup'],
    ...(plan.network ? [] : ['--unshare-net']),
    ...(plan.nestedNamespaces ? [] : ['--disable-userns']),
    ...['--die-with-parent', '--new-session', '--cap-drop', 'ALL', '--hostname', hostname],
    ...['--uid', String(plan.uid), '--gid', String(plan.uid)],
    ...plan.binds.flatMap(bindArgv),
    ...['bin', 'sbin', 'lib', 'lib64'].flatMap(name => ['--symlink', `usr/${name}`, `/${name}`]),
    ...ETC.flatMap(name => ['--ro-bind-try', `/etc/${name}`, `/etc/${name}`]),
    ...ownEtc.flatMap(({ name }) => ['--ro-bind', `${plan.etcDir}/${name}`, `/etc/${name}`]),
    ...['--proc', '/proc'],
    ...(plan.nestedNamespaces ? ['--dev', '/dev'] : deviceArgv),
    ...['--remount-ro', '/', '--clearenv'],
    ...Object.entries(plan.env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...['--chdir', plan.cwd, '--', ...plan.argv],
  ]
}

/** Files of the sandbox's own /etc. */
export const ownEtc = [
  { name: 'hosts', textOf: () => '127.0.0.1 localhost\n::1 localhost\n' },
  { name: 'nsswitch.conf', textOf: () => 'passwd: files\ngroup: files\nhosts: files dns\n' },
  { name: 'passwd', textOf: (uid: number) => `build:x:${uid}:${uid}:build:/build/home:/bin/sh\n` },
  { name: 'group', textOf: (uid: number) => `build:x:${uid}:\n` },
] as const

type Limits = {
  readonly processesMax: number
  readonly fileBytesMax: number
}

/**
 * Returns the program's whole command line. It joins the cgroup first, then drops root permanently. `$0` is the
 * cgroup's directory. It raises its OOM score, because the kernel would otherwise kill it last, as a child of the VM's
 * agent.
 */
export function launchArgv(cgroupDir: string, uid: number, limits: Limits, rest: readonly string[]): string[] {
  return [
    ...[
      '/bin/sh',
      '-c',
      'echo 1000 >/proc/self/oom_score_adj && echo 0 >"$0/cgroup.procs" && umask 022 && exec "$@"',
      cgroupDir,
    ],
    ...['prlimit', '--core=0', '--nofile=4096', '--memlock=0', `--fsize=${limits.fileBytesMax}`, '--'],
    ...['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs', '--inh-caps=-all'],
    ...['--bounding-set=-all', '--pdeathsig=KILL', '--'],
    // Set as that user, because the limit counts the processes of the user that sets it.
    ...['prlimit', `--nproc=${limits.processesMax}`, '--', ...rest],
  ]
}
