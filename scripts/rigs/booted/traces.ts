// Traces of programs in a booted Debian: files, users, units, and the state of its kernel, a line each, to compare
// before and after. Effects: runs commands in it that change nothing.

import type { BootedDebian } from './container.ts'

export type Traces = ReadonlySet<string>

/** Every program leaves these behind: logs, caches, the bookkeeping of dpkg, apt, systemd and passwd(5). */
const passing = [
  ...['/proc', '/sys', '/dev', '/run', '/tmp', '/var/tmp', '/var/log', '/root'],
  ...['/var/cache/apt', '/var/cache/ldconfig', '/var/cache/debconf', '/var/lib/apt', '/var/lib/dpkg'],
  ...['/etc/passwd-', '/etc/group-', '/etc/shadow-', '/etc/gshadow-', '/etc/ld.so.cache'],
  ...['/etc/.pwd.lock', '/var/lib/systemd/timers', '/var/lib/systemd/random-seed', '/var/lib/systemd/catalog'],
] as const

const script = `
prune='${passing.map(path => `-path ${path}`).join(' -o ')}'
find / -xdev \\( $prune \\) -prune -o ! -type d -printf 'file %p %y %m %u:%g %s %l\\n'
find / -xdev \\( $prune \\) -prune -o -type d -printf 'directory %p %m %u:%g\\n'
find /etc -xdev \\( $prune \\) -prune -o -type f -exec sha256sum {} + | sed 's/^/content /'
find /run /dev/shm -xdev -name '*strongroom*' -printf 'run %p\\n'
sed 's/^/user /' /etc/passwd
sed 's/^/group /' /etc/group
systemctl list-unit-files --no-legend --no-pager | sed 's/^/unit file /'
systemctl list-units --all --no-legend --no-pager --plain '*strongroom*' | sed 's/^/unit /'
find /sys/fs/cgroup -name '*strongroom*' -printf 'control group %p\\n'
ip -oneline link show | sed 's/^[0-9]*: /link /'
ip -oneline address show | sed 's/^[0-9]*: /address /'
ip route show table all | sed 's/^/route /'
nft list ruleset | sed 's/^/nft /'
ls /run/netns 2> /dev/null | sed 's/^/namespace /'
grep --recursive --no-messages '' /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf | sed 's/^/setting /'
sed 's/ .*//; s/^/mount /' /proc/self/mounts | sort --unique
for process in /proc/[0-9]*; do
  words=$(tr '\\0' ' ' < "$process/cmdline" 2> /dev/null)
  case "$words" in *qemu-system* | *swtpm* | *strongroom*) case "$words" in *find*) ;; *) echo "process $words" ;; esac ;; esac
done
true
`

export async function tracesOf(debian: BootedDebian): Promise<Traces> {
  const { stdout } = await debian.exec(['sh', '-uc', script])
  return new Set(stdout.split('\n').filter(Boolean))
}

export type Difference = { readonly left: readonly string[]; readonly missing: readonly string[] }

/** `left` is there after and was not before; `missing` is the reverse. */
export function difference(before: Traces, after: Traces): Difference {
  const sorted = (lines: ReadonlySet<string>) => [...lines].toSorted()
  return { left: sorted(after.difference(before)), missing: sorted(before.difference(after)) }
}
