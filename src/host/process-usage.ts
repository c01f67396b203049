// CPU time and memory of a process. Effects: reads /proc and control groups.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { resultOr } from '../base/result-or.ts'

export type ProcessUsage = {
  /** CPU time of all its threads since its start. */
  readonly cpuMs: number
  /** Null if the kernel does not report it. */
  readonly memoryBytes: number | null
}

/** USER_HZ, the unit of times in /proc, on every platform that Bun supports. */
const ticksPerSecond = 100
/** A scope of one VM; a larger group would count other processes too. */
const SCOPE = /^0::(\/.*\/strongroom-[0-9a-f-]{36}\.scope)$/m

/**
 * Returns the usage of the process with this number and start; null if it has ended. Memory is that of the VM's scope,
 * with the page cache; without a scope it is the resident memory of the process.
 */
export function processUsage(
  { pid, startTicks }: { readonly pid: number; readonly startTicks: number },
  { proc = '/proc', cgroup = '/sys/fs/cgroup' } = {},
): ProcessUsage | null {
  const read = (path: string) => resultOr(() => readFileSync(path, 'utf8'), null)
  const stat = read(join(proc, String(pid), 'stat'))
  if (stat === null) return null
  // The command name is in parentheses and may itself contain parentheses and blanks (proc_pid_stat(5)).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const field = (number: number) => Number(fields[number - firstField])
  if (field(22) !== startTicks) return null
  const cpuTicks = field(14) + field(15)
  if (!Number.isSafeInteger(cpuTicks)) return null
  const scope = SCOPE.exec(read(join(proc, String(pid), 'cgroup')) ?? '')?.[1]
  const inScope = scope === undefined ? null : read(join(cgroup, scope, 'memory.current'))
  const resident = /^VmRSS:\s+([0-9]+) kB$/m.exec(read(join(proc, String(pid), 'status')) ?? '')?.[1]
  const memoryBytes = inScope === null ? Number(resident) * 1024 : Number(inScope)
  return {
    cpuMs: (cpuTicks * 1000) / ticksPerSecond,
    memoryBytes: Number.isSafeInteger(memoryBytes) ? memoryBytes : null,
  }
}

/** Number of the first field behind the command name. */
const firstField = 3
