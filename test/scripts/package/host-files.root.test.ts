// Goal: the files that the package adds for programs that maintain a host are what these need to leave VMs and their
// network alone: systemd-networkd, systemd-tmpfiles and needrestart of Debian's packages, in trees of Debian.

import { beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { appliancePackage } from '../../../scripts/package/contents.ts'
import { bareDebianTree, buildTimeoutMs, maintainedDebianTree } from '../../../scripts/rigs/booted/tree.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { tapMac } from '../../../src/host/network/tap.ts'
import { linkMac } from '../../../src/host/network/vm-link.ts'

const repo = join(import.meta.dir, '../../..')
setDefaultTimeout(60_000)

const isRoot = needsRoot(import.meta.path)
beforeAll(async () => {
  if (!isRoot) return
  for (const release of [12, 13] as const) await bareDebianTree(release)
  await maintainedDebianTree()
}, 3 * buildTimeoutMs)

/** In namespaces of its own: a tree whose changes lie in memory, with the package's files; /sys as in a container. */
const enter = `
mount --make-rprivate /
tree=$1 files=$2 script=$3 root=/mnt/root
mount -t tmpfs none /mnt
mkdir /mnt/root /mnt/upper /mnt/work
mount -t overlay -o "lowerdir=$tree,upperdir=/mnt/upper,workdir=/mnt/work" none /mnt/root
cp -r "$files/." /mnt/root/
cp /usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 /mnt/root/faketime.so
mount -t proc none /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mount -t sysfs -o ro none /mnt/root/sys
mount -t tmpfs none /mnt/root/run
ip link set lo up
cd /
eval "$script"
`

const apart = ['unshare', '--mount', '--net', '--pid', '--fork', '--kill-child']

/** Runs a script beside a tree of Debian, `$root`, as root and returns what it prints. Throws if it fails. */
async function inTree(tree: string, script: string): Promise<string> {
  const files = mkdtempSync(join(tmpdir(), 'srt-host-files-'))
  try {
    const facts = { repo, version: '0.0.1', maintainer: 'a <a@example>', epochS: 0, executable: '/nonexistent' }
    for (const entry of appliancePackage(facts).entries) {
      if (entry.kind !== 'file' || !/^(?:etc|usr\/lib)\//.test(entry.path)) continue
      mkdirSync(dirname(join(files, entry.path)), { recursive: true })
      writeFileSync(join(files, entry.path), entry.bytes)
    }
    const argv = [...apart, 'sh', '-euc', enter, 'sh', tree, files, script]
    const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe', timeout: 50_000 })
    const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    if (code !== 0) throw new Error(`exit ${code}: ${err}${out}`)
    return out
  } finally {
    rmSync(files, { recursive: true, force: true })
  }
}

describe.skipIf(!isRoot)('files for programs that maintain a host', () => {
  // The link as vm-link.ts makes it for IPv4, and a configuration for all interfaces, as images of clouds have it.
  const network = (before: string) => `
    ${before}
    printf '[Match]\\nName=*\\n[Network]\\nAddress=198.51.100.7/32\\nIPv6AcceptRA=no\\n' > $root/etc/systemd/network/50-all.network
    echo 0123456789abcdef0123456789abcdef > $root/etc/machine-id
    ip link add up0 type veth peer name up1
    ip link add srn-vms address ${linkMac} type veth peer name srn-host
    for link in up0 up1 srn-host; do ip link set $link up; done
    # Open, as the daemon has it: without a program a tap has no carrier, and nothing configures it.
    perl -e 'open(T, "+<", "/dev/net/tun") or die; $r = pack("a16 S x22", "srnprobe", 0x1002); ioctl(T, 0x400454ca, $r) or die; sleep 50' > /dev/null 2>&1 &
    until ip link show srnprobe > /dev/null 2>&1; do sleep 0.1; done
    ip link set srnprobe address ${tapMac} up
    echo 1 > /proc/sys/net/ipv6/conf/srn-vms/disable_ipv6
    ip link set srn-vms arp off up
    ip address add 10.88.0.1/32 dev srn-vms scope link
    ip route replace local 10.88.0.1 dev srn-vms table 29554
    ip route replace 10.88.0.9/32 via 192.0.0.8 dev srn-vms onlink src 10.88.0.1
    ip rule add pref 1 lookup local protocol kernel
    ip rule add pref 2 type nop protocol kernel
    ip rule delete pref 0 lookup local
    ip rule add pref 0 iif srn-vms lookup 29554 protocol kernel
    ip rule add pref 0 iif srn-vms blackhole protocol kernel
    state() {
      ip -4 -o address show dev srnprobe
      ip -o address show dev srn-vms
      ip route show table all dev srn-vms
      ip rule show
      cat /proc/sys/net/ipv6/conf/srn-vms/disable_ipv6
    }
    mkdir -p $root/run/systemd/netif/links $root/run/systemd/netif/leases $root/run/systemd/netif/lldp $root/run/udev
    chroot $root chown -R systemd-network:systemd-network /run/systemd/netif
    state > $root/run/before
    # Twice: a restart finds what the first start has made.
    for start in 1 2; do
      chroot $root /usr/lib/systemd/systemd-networkd 2> $root/run/log &
      for try in $(seq 200); do
        ! ip address show dev up0 | grep -q 198.51.100.7 || [ ! -e $root/run/systemd/netif/state ] || break
        sleep 0.1
      done
      sleep 1
      kill $!
      wait $! || true
    done
    ip address show dev up0 | grep -q 198.51.100.7 || { cat $root/run/log; exit 1; }
    state > $root/run/after
    diff $root/run/before $root/run/after || true`
  test.each([12, 13] as const)(
    'goal: systemd-networkd of Debian %d leaves the link to the VMs and the probe of firewalls alone',
    async release => {
      const tree = await bareDebianTree(release)
      expect(await inTree(tree, network(''))).toBe('')
      // Without the file it would not.
      expect(await inTree(tree, network('rm $root/usr/lib/systemd/network/00-strongroom.network'))).toContain(
        '198.51.100.7',
      )
    },
  )

  test.each([12, 13] as const)(
    'goal: systemd-tmpfiles of Debian %d removes no file of the appliance',
    async release => {
      const vm = '/var/lib/strongroom/vms/01234567-89ab-4def-8123-456789abcdef'
      const printed = await inTree(
        await bareDebianTree(release),
        `chroot $root sh -eu << 'END'
      systemd-tmpfiles --create strongroom.conf
      mkdir -p ${vm} /run/netns /etc/strongroom
      touch ${vm}/tpm.state /var/lib/strongroom/strongroom.db /etc/strongroom/strongroom.toml /run/netns/strongroom
      perl -e 'use IO::Socket::UNIX; IO::Socket::UNIX->new(Local => $_, Listen => 1) for @ARGV' \\
        ${vm}/qmp.sock /var/lib/strongroom/admin.sock /run/strongroom-starter.sock
      echo 'd /var/spool/control 0755 root root 10d' > /etc/tmpfiles.d/control.conf
      mkdir -p /var/spool/control
      touch /var/spool/control/old
      list() { find /var/lib/strongroom /etc/strongroom /run/netns /run/strongroom* /var/spool/control | sort; }
      list > /root/before
      # Ages count from a file's last change of status too, which touch(1) cannot set back: so the clock is put ahead.
      LD_PRELOAD=/faketime.so FAKETIME=+400d NO_FAKE_STAT=1 systemd-tmpfiles --clean
      list > /root/after
      diff /root/before /root/after || true
END
`,
      )
      expect(printed.match(/^[<>].*$/gm)).toEqual(['< /var/spool/control/old'])
    },
  )

  test('goal: after an upgrade of a library needrestart restarts the daemon, and nothing that is under way', async () => {
    const services = ['strongroom', 'strongroom-starter@12-3456-0', 'strongroom-backup', 'strongroom-upgrade']
    const groups = [
      ...services.map(name => `system.slice/${name}.service`),
      'strongroom.slice/strongroom-01234567-89ab-4def-8123-456789abcdef.scope',
    ]
    // systemd is a script that writes down what it is asked: needrestart finds units by control groups of processes.
    const printed = await inTree(
      await maintainedDebianTree(),
      `
      mkdir -p $root/run/systemd/system /mnt/groups
      printf '#!/bin/sh\necho "$*" >> /calls\n' > $root/usr/bin/systemctl.new
      chmod 755 $root/usr/bin/systemctl.new
      mv $root/usr/bin/systemctl.new $root/usr/bin/systemctl
      mount -t cgroup2 none /mnt/groups
      own=/mnt/groups/srt-${process.pid}-0
      for group in ${groups.join(' ')}; do
        mkdir -p $own/$group
        sh -c 'echo $$ > "$1/cgroup.procs"; exec setsid chroot $2 sleep 60' sh $own/$group $root > /dev/null 2>&1 &
      done
      until [ $(chroot $root pgrep -xc sleep) = ${groups.length} ]; do sleep 0.1; done
      library=$root$(chroot $root readlink -f /lib/x86_64-linux-gnu/libc.so.6)
      cp $library $library.new
      mv $library.new $library
      echo $$ > $own/cgroup.procs
      unshare --cgroup chroot $root needrestart -r a -l > /mnt/needrestart.log 2>&1 || { cat /mnt/needrestart.log >&2; exit 1; }
      grep '^restart' $root/calls
      chroot $root pgrep -xc sleep
      echo $$ > /mnt/groups/cgroup.procs
      echo 1 > $own/cgroup.kill
      until grep -q 'populated 0' $own/cgroup.events; do sleep 0.1; done
      find $own -depth -type d -exec rmdir {} +`,
    )
    expect(printed.trim().split('\n')).toEqual(['restart strongroom.service', `${groups.length}`])
  })
})
