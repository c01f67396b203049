// VMs that are files of a directory: they outlive the process that made them, as QEMU does. Effects: those files,
// timers.

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { VmEngine, VmView } from '../../../src/vm/engine.ts'

export type FakeVms = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange'> & {
  readonly ids: () => string[]
  readonly stop: () => void
}

export function openFakeVms(directory: string, bootMs = 5): FakeVms {
  mkdirSync(directory, { recursive: true })
  const listeners: ((vmId: string) => void)[] = []
  const timers = new Set<Timer>()
  const path = (vmId: string) => join(directory, vmId)
  const later = (vmId: string, work: () => void, afterMs = 1) => {
    const timer = setTimeout(() => {
      timers.delete(timer)
      work()
      for (const listener of listeners) listener(vmId)
    }, afterMs)
    timers.add(timer)
  }
  const boot = (vmId: string) =>
    later(vmId, () => existsSync(path(vmId)) && writeFileSync(path(vmId), 'running'), bootMs)
  const ids = () => readdirSync(directory)
  for (const vmId of ids()) boot(vmId)
  return {
    ids,
    define: vmId => {
      if (existsSync(path(vmId))) return
      writeFileSync(path(vmId), 'booting')
      boot(vmId)
    },
    dismiss: vmId => later(vmId, () => rmSync(path(vmId), { force: true })),
    view: vmId => {
      if (!existsSync(path(vmId))) return null
      const state = readFileSync(path(vmId), 'utf8') === 'running' ? 'running' : 'booting'
      return viewOf(vmId, state)
    },
    onChange: listener => {
      listeners.push(listener)
    },
    stop: () => {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

function viewOf(id: string, state: 'running' | 'booting'): VmView {
  // An address by its id.
  const [a = 0, b = 0] = Buffer.from(id.replaceAll('-', ''), 'hex').subarray(-2)
  return {
    id,
    state,
    platform: 'tcg',
    address: `10.88.${a}.${b}`,
    addressV6: null,
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    guest: state === 'running' ? { boxKey: 'k', sshHostKey: null, claimId: null } : null,
    opened: true,
  }
}
