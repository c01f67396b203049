// Running processes, by number. Effects: reads /proc.

import { readProc, readStat } from '../stat.ts'

export type RunningProcess = {
  readonly pid: number
  /** Clock ticks from boot to its start, field 22 of /proc/PID/stat. */
  readonly startTicks: number
  readonly argv: readonly string[]
}

/** The living process of this number, or null. A zombie does not live. */
export function identifyProcess(pid: number): RunningProcess | null {
  for (let attempt = 1; ; attempt += 1) {
    const before = readStat(pid)
    if (before === null) return null
    const argv = readArgv(pid)
    const after = readStat(pid)
    // Read before and after, so that the argv is not a successor's.
    if (argv === null || after === null || after.startTicks !== before.startTicks) return null
    // In the middle of execve(2) a command line is empty for a moment; also between exit and zombie.
    if (argv.length > 0 || after.isKernelThread || attempt >= execAttemptCountMax) {
      return { pid, startTicks: before.startTicks, argv }
    }
    Bun.sleepSync(1)
  }
}

/** No share: attempts of one start. */
const execAttemptCountMax = 50

/** Living children of its first thread (proc_pid_children(5)). */
export function childrenOf(pid: number): RunningProcess[] {
  const pids = (readProc(pid, `task/${pid}/children`) ?? '').split(' ').filter(Boolean)
  return pids.flatMap(child => identifyProcess(Number(child)) ?? [])
}

function readArgv(pid: number): string[] | null {
  const text = readProc(pid, 'cmdline')
  if (text === null) return null
  const argv = text.split('\0')
  if (argv.at(-1) === '') argv.pop()
  return argv
}
