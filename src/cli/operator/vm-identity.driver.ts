// Opens devices as the identity that VMs get, for `strongroom doctor`. Effects: runs a command that opens a file and closes it again.

import { readFileSync, statSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { run } from '../../linux/command.ts'
import { unprivilegedArgv } from '../../vm/qemu.plan.ts'
import type { DeviceFacts, Outcome } from './doctor.plan.ts'

/** Null when there is no such device. Needs root, as the start of a VM does. Never throws. */
export async function lookAtDevice(path: string, user: string): Promise<DeviceFacts | null> {
  const stat = statSync(path, { throwIfNoEntry: false })
  if (stat === undefined) return null
  return { outcome: await openAsVm(path, user), group: groupName(stat.gid), mode: stat.mode & 0o777 }
}

/** Through the very command line that QEMU is started with, so that user, groups and capabilities are those of a VM. */
async function openAsVm(path: string, user: string): Promise<Outcome> {
  try {
    const argv = unprivilegedArgv(user, ['sh', '-c', 'exec 3<>"$1"', 'sh', path])
    await run(argv, { timeoutMs: 10_000, outputBytesMax: 4_096 })
    return { ok: true, text: 'opened' }
  } catch (error) {
    const message = messageOf(error)
    // `sh: 1: cannot create /dev/kvm: Permission denied`: the last part is the system's word.
    const word = /cannot (?:create|open) .*: ([A-Za-z ]+)$/.exec(message)?.[1]
    return { ok: false, text: word ?? message }
  }
}

/** The number where the group has no name (group(5)). */
function groupName(gid: number): string {
  const lines = readFileSync('/etc/group', 'utf8').split('\n')
  return lines.find(line => line.split(':')[2] === String(gid))?.split(':')[0] ?? String(gid)
}
