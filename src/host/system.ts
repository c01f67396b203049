// What the daemon reads and sets of the machine it runs on: its boot, its routing, its users. Effects: reads and writes /proc, reads /etc/passwd.

import { readFileSync, writeFileSync } from 'node:fs'
import { Fault, wrapFault } from '../base/fault.ts'
import type { Owner } from '../linux/files.ts'

/** Random per boot of the host (random(4)): when it changes, every process of before is gone. */
export function hostBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
}

/**
 * Whether systemd is shutting this host down: it ends the scopes of VMs while the daemon still runs. False without systemd, and where it does
 * not say (systemctl(1), is-system-running; its exit code is not 0 for any state but `running`).
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

/** Lets the host forward IPv4 between interfaces, in this network namespace. Fault host.unsupported. */
export function enableForwarding(): void {
  const path = '/proc/sys/net/ipv4/ip_forward'
  try {
    if (readFileSync(path, 'utf8').trim() !== '1') writeFileSync(path, '1')
  } catch (error) {
    throw wrapFault(error, `write ${path}`, 'host.unsupported')
  }
}

/** User and primary group id by name (passwd(5)). Fault host.unsupported when there is no such user. */
export function lookupUser(name: string, passwdFile = '/etc/passwd'): Owner {
  for (const line of readFileSync(passwdFile, 'utf8').split('\n')) {
    const [user, , uid, gid] = line.split(':')
    if (user === name && uid && gid) return { uid: Number(uid), gid: Number(gid) }
  }
  throw new Fault('host.unsupported', `there is no user ${name} on this host; create it, or set vm.user`)
}
