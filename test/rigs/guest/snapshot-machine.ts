// A file system like that of an instance, in a mount namespace of its own, with the programs that pack and restore
// snapshots. Effects: processes as root; nothing outside of the namespace changes.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = new URL('../../../guest-image/recipes/instance/root/', import.meta.url).pathname

/** As init, the claim and `sessions` make it. $1: the image's files; $2: a directory shared with tests. */
const SETUP = `
set -euo pipefail
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/lib /mnt/lib-work /mnt/bin /mnt/bin-work
mount -t overlay -o lowerdir=/usr/lib,upperdir=/mnt/lib,workdir=/mnt/lib-work overlay /usr/lib
mount -t overlay -o lowerdir=/usr/bin,upperdir=/mnt/bin,workdir=/mnt/bin-work overlay /usr/bin
mkdir -p /usr/lib/strongroom
cp "$1"usr/lib/strongroom/{snapshot,snapshot-pack,restore-files} /usr/lib/strongroom/
cp "$1"usr/bin/strongroom-restore /usr/bin/
umount -l /mnt
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/strongroom/log && chmod 0700 /run/strongroom/log
mount -t tmpfs -o mode=0755 tmpfs /home
mkdir /home/agent /run/strongroom/private-root
chown 1000:1000 /home/agent /run/strongroom/private-root
chmod 0700 /run/strongroom/private-root
setpriv --reuid=1000 --regid=1000 --clear-groups unshare --user sleep 60 &
holder=$!
until [ "$(readlink /proc/$holder/ns/user 2>/dev/null)" != "$(readlink /proc/$$/ns/user)" ] && [ -e /proc/$holder/ns/user ]; do sleep 0.01; done
# In one write each.
/usr/bin/printf '0 1000 1\\n1 100000 65535\\n' >/proc/$holder/uid_map
/usr/bin/printf '0 1000 1\\n1 100000 65535\\n' >/proc/$holder/gid_map
: >/run/strongroom/user-namespace
mount --bind /proc/$holder/ns/user /run/strongroom/user-namespace
kill $holder
shared=$2
echo "quiet strongroom.root_hash=\${root_hash:-${'a1'.repeat(32)}} panic=-1" >/run/cmdline
mount --bind /run/cmdline /proc/cmdline
as_owner() { setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/agent "$@"; }
in_private_root() { nsenter --user=/run/strongroom/user-namespace -- "$@"; }
cd /
`

export type Ended = { readonly code: number; readonly stdout: string; readonly stderr: string }

export type SnapshotMachine = {
  /** Directory that every machine sees as `$shared`. */
  readonly shared: string
  /** Runs a script in a new machine, as root. `env`: `root_hash` is that of its image. */
  readonly run: (script: string, env?: Record<string, string>) => Promise<Ended>
} & Disposable

export function openSnapshotMachine(): SnapshotMachine {
  const shared = mkdtempSync(join(tmpdir(), 'srt-snapshot-'))
  return {
    shared,
    run: async (script, env = {}) => {
      const argv = ['unshare', '--mount', 'bash', '-c', `${SETUP}${script}`, 'machine', root, shared]
      const child = Bun.spawn(argv, {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
        env: { ...process.env, ...env },
      })
      const [stdout, stderr] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
      return { code: await child.exited, stdout, stderr }
    },
    [Symbol.dispose]: () => rmSync(shared, { recursive: true, force: true }),
  }
}
