// The jail of a program of a VM: bubblewrap (bwrap(1)) with an empty root and namespaces of its own. Pure.
//
// bwrap runs as the VM's user, so a user namespace gives it what it needs and nothing on this host. The program is the
// first process of its process namespace, and the only one. Its root is a read-only tmpfs with the files that it loads;
// its network namespace has a loopback interface and no other, so that it reaches the network by the inherited tap
// alone. `--disable-userns` keeps it from a further user namespace, in which it would have capabilities.

export type Jail = {
  /** Absolute paths of files and directories of this host that it sees, read-only. */
  readonly files: readonly string[]
  /** Device nodes that it may open as far as its user may. */
  readonly devices: readonly string[]
  /** Whether it ends with bwrap's parent; a VM outlives the daemon. */
  readonly diesWithParent?: boolean
}

/** Command prefix that runs the program in its jail. The program must be an absolute path among the files. */
export function jailArgv({ files, devices, diesWithParent = false }: Jail, argv: readonly string[]): string[] {
  return [
    ...['bwrap', '--unshare-user', '--unshare-pid', '--as-pid-1', '--unshare-net', '--unshare-ipc', '--unshare-uts'],
    ...['--unshare-cgroup', '--disable-userns', '--cap-drop', 'ALL', '--uid', innerId, '--gid', innerId, '--clearenv'],
    ...(diesWithParent ? ['--die-with-parent'] : []),
    ...files.flatMap(path => ['--ro-bind', path, path]),
    // QEMU probes the locks of open files with /dev/null.
    ...['/dev/null', ...devices].flatMap(path => ['--dev-bind', path, path]),
    // QEMU loads kernel, initrd and firmware by /proc/self/fd.
    ...['--proc', '/proc', '--remount-ro', '/', '--chdir', '/', '--', ...argv],
  ]
}

/** User and group within; outside they are the VM's. */
const innerId = '65534'

/**
 * Whether the process is still on its way into the jail, or is the bwrap that waits for it. Every stage replaces the
 * one before it, and bwrap alone makes another process.
 */
export function isBeforeProgram(argv: readonly string[]): boolean {
  // systemd-run(1) puts the whole path in front.
  return STAGES.includes((argv[0] ?? '').split('/').at(-1) ?? '')
}

const STAGES: readonly string[] = ['systemd-run', 'prlimit', 'choom', 'setpriv', 'bwrap']
