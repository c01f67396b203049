// Opens devices as the identity that VMs get, for `strongroom doctor`. Effects: runs a command that opens a file and
// closes it again.

import { readFileSync, statSync } from 'node:fs'
import { resultOr } from '../../base/result-or.ts'
import { groupsOfDevices } from '../../host/system.ts'
import { run } from '../../linux/command.ts'
import { type Confinement, confinedArgv } from '../../vm/launch/confinement.plan.ts'
import { type Outcome, outcomeOf } from './check.ts'
import type { DeviceFacts } from './host.plan.ts'

/** Opens the device as `vm`; null without such a device. Needs root, as the start of a VM does. Never throws. */
export async function collectDeviceFacts(path: string, vm: Confinement): Promise<DeviceFacts | null> {
  const stat = statSync(path, { throwIfNoEntry: false })
  if (stat === undefined) return null
  return { outcome: await openAsVm(path, vm), group: groupName(stat.gid), mode: stat.mode & 0o777 }
}

/** Through the very command line that QEMU is started with, so that user, groups and capabilities are those of a VM. */
async function openAsVm(path: string, vm: Confinement): Promise<Outcome> {
  const argv = confinedArgv(vm, ['sh', '-c', 'exec 3<>"$1"', 'sh', path])
  const opened = await outcomeOf(async () => (await run(argv, { timeoutMs: 10_000, outputBytesMax: 4_096 })).stdout)
  if (opened.ok) return { ok: true, text: 'opened' }
  // `sh: 1: cannot create /dev/kvm: Permission denied`: the last part is the system's word.
  const word = /cannot (?:create|open) .*: ([A-Za-z ]+)$/.exec(opened.text)?.[1]
  return { ok: false, text: word ?? opened.text }
}

/**
 * Returns the groups of the platform's VMs. None if starting them would fail; opening the device then reports the
 * reason.
 */
export function groupsOfVms(platform: Confinement['platform']): number[] {
  return resultOr(() => groupsOfDevices(platform), [])
}

/** The number where the group has no name (group(5)). */
function groupName(gid: number): string {
  const lines = readFileSync('/etc/group', 'utf8').split('\n')
  return lines.find(line => line.split(':')[2] === String(gid))?.split(':')[0] ?? String(gid)
}
