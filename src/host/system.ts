// The machine on which the daemon runs: boot id, routing, users, access to devices. Effects: reads and writes /proc,
// reads /etc and modes of devices.

import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, wrapFault } from '../base/fault.ts'
import type { Platform } from '../config/schema.ts'
import { type Owner, readTextOrNull } from '../linux/files.ts'

/** Returns an id that is random per boot of the host (random(4)): when it changes, every earlier process is gone. */
export function hostBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
}

/**
 * Identifies the holder of a locked file among the processes of all machines. A process with the same id runs only
 * after the former one has ended: the kernel gives one process the lock, and a copy of the file is another inode, or
 * on another boot. Only a snapshot with the memory of a host that is itself a VM has the same id. A digest, because it
 * is shown to other hosts.
 */
export function lockHolderId(lockPath: string): string {
  const { dev, ino } = statSync(lockPath, { bigint: true })
  return new Bun.CryptoHasher('sha256').update(`${hostBootId()} ${dev} ${ino}`).digest('hex')
}

/**
 * Reports whether systemd is shutting this host down, which ends the scopes of VMs while the daemon still runs. False
 * without systemd or without an answer (systemctl(1), is-system-running; exit code 0 only for `running`).
 */
export async function isHostStopping(
  command: readonly string[] = ['systemctl', 'is-system-running'],
): Promise<boolean> {
  try {
    const child = Bun.spawn([...command], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'ignore',
      timeout: stateTimeoutMs,
    })
    return (await child.stdout.text()).trim() === 'stopping'
  } catch {
    return false
  }
}

const stateTimeoutMs = 3_000

/** Called before a setting is changed; see changed-settings.ts. */
type NoteChange = (change: { readonly path: string; readonly was: string; readonly set: string }) => void

/** Makes the host forward IPv4 between interfaces, in this network namespace. Throws Fault host.unsupported. */
export function enableForwarding(note: NoteChange, path = '/proc/sys/net/ipv4/ip_forward'): void {
  try {
    const was = readFileSync(path, 'utf8').trim()
    if (was === '1') return
    note({ path, was, set: '1' })
    writeFileSync(path, '1')
  } catch (error) {
    throw wrapFault(error, `write ${path}`, 'host.unsupported')
  }
}

/**
 * Enables IPv6 forwarding, which is on for all interfaces or none. Interfaces that accept routes from router
 * advertisements continue to do so (Documentation/networking/ip-sysctl.rst, accept_ra); otherwise this host would lose
 * its own. Throws Fault host.unsupported.
 */
export function enableForwardingV6(note: NoteChange, directory = '/proc/sys/net/ipv6/conf'): void {
  try {
    const read = (path: string) => readFileSync(`${directory}/${path}`, 'utf8').trim()
    const change = (name: string, set: string) => {
      const path = `${directory}/${name}`
      note({ path, was: read(name), set })
      writeFileSync(path, set)
    }
    if (read('all/forwarding') === '1') return
    const interfaces = readdirSync(directory).filter(name => name !== 'all' && name !== 'default')
    for (const name of interfaces) {
      if (read(`${name}/accept_ra`) === '1' && read(`${name}/forwarding`) === '0') change(`${name}/accept_ra`, '2')
    }
    change('all/forwarding', '1')
  } catch (error) {
    throw wrapFault(error, `let this host forward IPv6, for network.pool_v6, in ${directory}`, 'host.unsupported')
  }
}

/** Returns user and primary group id by name (passwd(5)). Throws Fault host.unsupported if there is no such user. */
export function lookupUser(name: string, passwdFile = '/etc/passwd'): Owner {
  for (const line of readFileSync(passwdFile, 'utf8').split('\n')) {
    const [user, , uid, gid] = line.split(':')
    if (user === name && uid && gid) return { uid: Number(uid), gid: Number(gid) }
  }
  throw new Fault('host.unsupported', `there is no user ${name} on this host; create it, or set inference.worker.user`)
}

type Range = { readonly min: number; readonly max: number }

/**
 * Returns the range. Throws Fault host.unsupported if a user of /etc/passwd, the built-in worker's included, or a
 * container's range of /etc/subuid (subuid(5)) has ids in it. Users of a directory service are not looked up.
 */
export function checkUidRange<R extends Range>(range: R, { root }: { readonly root: string } = { root: '/' }): R {
  const { min, max } = range
  const fieldsOf = (file: string) => (readTextOrNull(join(root, file)) ?? '').split('\n').map(line => line.split(':'))
  const taken: (Range & { readonly by: string })[] = [
    ...fieldsOf('etc/passwd').map(([user = '', , uid = '']) => ({ by: `user ${user}`, min: +uid, max: +uid })),
    ...fieldsOf('etc/subuid').map(([user = '', first = '', count = '']) => ({
      by: `/etc/subuid of ${user}`,
      min: +first,
      max: +first + +count - 1,
    })),
  ]
  const holder = taken.find(other => other.max > 0 && other.min <= max && other.max >= min)
  if (holder === undefined) return range
  throw new Fault(
    'host.unsupported',
    `vm.uid_min to vm.uid_max (${min} to ${max}) overlaps ${holder.by} (${holder.min} to ${holder.max}); choose a free range`,
  )
}

/** Devices that QEMU itself opens for reading and writing. */
const DEVICES: Record<Platform, readonly string[]> = { tcg: [], kvm: ['dev/kvm'], snp: ['dev/kvm', 'dev/sev'] }

/**
 * Returns the groups that an unprivileged QEMU needs to open its devices, by number, without repeats; none for devices
 * that everyone may open. Throws Fault host.unsupported if a device is missing, or closed to any group except root's.
 */
export function groupsOfDevices(platform: Platform, { root }: { readonly root: string } = { root: '/' }): number[] {
  const groups = DEVICES[platform].flatMap(device => {
    const { mode, gid } = statDevice(join(root, device))
    if ((mode & readWriteOthers) === readWriteOthers) return []
    if ((mode & readWriteGroup) === readWriteGroup && gid !== 0) return [gid]
    const name = device.slice(device.lastIndexOf('/') + 1)
    throw new Fault(
      'host.unsupported',
      `/${device} is closed to every group (mode ${(mode & 0o777).toString(8)}, gid ${gid}): QEMU, which is not root, cannot open it. ` +
        `Give it to group kvm: echo 'KERNEL=="${name}", GROUP="kvm", MODE="0660"' > /etc/udev/rules.d/60-strongroom-${name}.rules; ` +
        `udevadm control --reload; udevadm trigger --name-match=${name}`,
    )
  })
  return [...new Set(groups)]
}

const readWriteGroup = 0o060
const readWriteOthers = 0o006

function statDevice(path: string): { mode: number; gid: number } {
  try {
    return statSync(path)
  } catch (error) {
    throw wrapFault(error, `look at ${path}`, 'host.unsupported')
  }
}
