// VMs that are files of a directory, so that they outlive the process that made them, as QEMU does; or in memory alone.
// Effects: those files, timers.

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { VmEngine, VmView } from '../../../src/vm/engine.ts'

export type FakeVms = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange'> & {
  readonly ids: () => string[]
  readonly stop: () => void
}

/** `directory` null: VMs are in memory alone, and end with the process. `mayBoot`: none boots before. */
export function openFakeVms(
  directory: string | null,
  bootMs = 5,
  mayBoot: Promise<unknown> = Promise.resolve(),
): FakeVms {
  const states: VmStates = directory === null ? new Map<string, VmState>() : filesIn(directory)
  const listeners: ((vmId: string) => void)[] = []
  const timers = new Set<Timer>()
  let isStopped = false
  const later = (vmId: string, work: () => void, afterMs = 1) => {
    if (isStopped) return
    const timer = setTimeout(() => {
      timers.delete(timer)
      work()
      for (const listener of listeners) listener(vmId)
    }, afterMs)
    timers.add(timer)
  }
  const boot = (vmId: string) => {
    const boots = () => later(vmId, () => states.has(vmId) && states.set(vmId, 'running'), bootMs)
    void mayBoot.then(boots)
  }
  const ids = () => [...states.keys()]
  for (const vmId of ids()) boot(vmId)
  return {
    ids,
    define: vmId => {
      if (states.has(vmId)) return
      states.set(vmId, 'booting')
      boot(vmId)
    },
    dismiss: vmId => later(vmId, () => states.delete(vmId)),
    view: vmId => {
      const state = states.get(vmId)
      return state === undefined ? null : viewOf(vmId, state)
    },
    onChange: listener => {
      listeners.push(listener)
    },
    stop: () => {
      isStopped = true
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

type VmState = 'running' | 'booting'

type VmStates = {
  readonly has: (vmId: string) => boolean
  readonly get: (vmId: string) => VmState | undefined
  readonly set: (vmId: string, state: VmState) => void
  readonly delete: (vmId: string) => void
  readonly keys: () => Iterable<string>
}

/** A file for each VM. */
function filesIn(directory: string): VmStates {
  mkdirSync(directory, { recursive: true })
  const path = (vmId: string) => join(directory, vmId)
  const has = (vmId: string) => existsSync(path(vmId))
  return {
    has,
    get: vmId => (has(vmId) ? (readFileSync(path(vmId), 'utf8') === 'running' ? 'running' : 'booting') : undefined),
    set: (vmId, state) => writeFileSync(path(vmId), state),
    delete: vmId => rmSync(path(vmId), { force: true }),
    keys: () => readdirSync(directory),
  }
}

function viewOf(id: string, state: VmState): VmView {
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
