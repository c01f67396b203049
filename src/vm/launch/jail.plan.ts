// The jail of a program of a VM: bubblewrap (bwrap(1)) with an empty root and separate namespaces. Pure.
//
// bwrap runs as the VM's user, so a user namespace gives it the needed rights without any on this host. The program is
// the first and only process of its process namespace. Its root is a read-only tmpfs with the files that it loads; its
// network namespace has only a loopback interface, so that it reaches the network only by the inherited tap.
// `--disable-userns` keeps it from creating another user namespace, in which it would have capabilities.

export type Jail = {
  /** Absolute paths of files and directories of this host that it sees, read-only. */
  readonly files: readonly string[]
  /** Device nodes that it may open if its user may. */
  readonly devices: readonly string[]
  /** Whether it ends with bwrap's parent. A VM, in contrast, outlives the daemon. */
  readonly diesWithParent?: boolean
}

/**
 * Returns the command prefix that runs the program in its jail. The program must be an absolute path among the files.
 */
export function jailArgv({ files, devices, diesWithParent = false }: Jail, argv: readonly string[]): string[] {
  return [
    ...['bwrap', '--unshare-user', '--unshare-pid', '--as-pid-1', '--unshare-net', '--unshare-ipc', '--unshare-uts'],
    ...['--unshare-cgroup', '--disable-userns', '--cap-drop', 'ALL', '--uid', innerId, '--gid', innerId, '--clearenv'],
    ...(diesWithParent ? ['--die-with-parent'] : []),
    ...files.flatMap(path => ['--ro-bind', path, path]),
    // QEMU tests the locking of open files with /dev/null.
    ...['/dev/null', ...devices].flatMap(path => ['--dev-bind', path, path]),
    // QEMU loads kernel, initrd and firmware through /proc/self/fd.
    ...['--proc', '/proc', '--remount-ro', '/', '--chdir', '/', '--', ...argv],
  ]
}

/** User and group inside; outside they are the VM's. */
const innerId = '65534'

/**
 * Reports whether the process is not yet in the jail, or is the bwrap that waits for it. Every stage replaces the
 * previous one, and only bwrap starts another process. A process has no command line in the middle of execve(2), and
 * while it ends: that is not the program either.
 */
export function isBeforeProgram(argv: readonly string[]): boolean {
  if (argv.length === 0) return true
  // systemd-run(1) uses the whole path.
  return STAGES.includes((argv[0] ?? '').split('/').at(-1) ?? '')
}

const STAGES: readonly string[] = ['systemd-run', 'prlimit', 'choom', 'setpriv', 'bwrap']
