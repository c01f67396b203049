// The systemd scopes in which VMs run, as the kernel reports them. Effects: reads control groups.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { resultOr } from '../base/result-or.ts'

export type VmScope = {
  readonly vmId: string
  /** Name of the systemd unit. */
  readonly unit: string
  /** Processes in the scope. */
  readonly pids: readonly number[]
}

/**
 * Mount points of control groups: version 2 alone, systemd's tree next to version 1, and its name up to systemd 232.
 */
const TREES = ['', 'unified', 'systemd'] as const
const slice = 'strongroom.slice'

/**
 * Returns scopes of VMs and their TPMs, sorted by name; none without systemd. Never throws: ended scopes are omitted.
 */
export function listVmScopes(root = '/sys/fs/cgroup'): VmScope[] {
  const found = new Map<string, VmScope>()
  for (const tree of TREES) {
    const directory = join(root, tree, slice)
    for (const unit of namesIn(directory)) {
      const vmId = SCOPE.exec(unit)?.[1]
      if (vmId === undefined) continue
      const pids = pidsIn(join(directory, unit, 'cgroup.procs'))
      if ((found.get(unit)?.pids.length ?? -1) < pids.length) found.set(unit, { vmId, unit, pids })
    }
  }
  return [...found.values()].sort((a, b) => (a.unit < b.unit ? -1 : 1))
}

const SCOPE = /^strongroom-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-tpm)?\.scope$/

function namesIn(directory: string): string[] {
  return resultOr(() => readdirSync(directory), [])
}

function pidsIn(file: string): number[] {
  return resultOr(() => readFileSync(file, 'utf8').split('\n').filter(Boolean).map(Number), [])
}
