// A process's state in /proc (proc_pid_stat(5)). Effects: reads /proc.

import { readFileSync } from 'node:fs'

type ProcessStat = {
  /** Clock ticks from boot to its start; together with the process number it identifies a process. */
  readonly startTicks: number
  readonly isKernelThread: boolean
}

/** Null when no process of this number runs. A zombie does not run. */
export function readStat(pid: number): ProcessStat | null {
  const text = readProc(pid, 'stat')
  if (text === null) return null
  // The command name is in parentheses and may itself hold parentheses and blanks: count fields from the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const field = (number: number) => fields[number - STAT.state] ?? ''
  const startTicks = Number(field(STAT.startTicks))
  if ('ZXx'.includes(field(STAT.state)) || !Number.isSafeInteger(startTicks)) return null
  return { startTicks, isKernelThread: (Number(field(STAT.flags)) & PF_KTHREAD) !== 0 }
}

/** Text of /proc/PID/`file`; null when it cannot be read: the process has ended, or belongs to another user. */
export function readProc(pid: number, file: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return null
  }
}

/** Field numbers of /proc/PID/stat. */
const STAT = { state: 3, flags: 9, startTicks: 22 } as const
const PF_KTHREAD = 0x0020_0000 // include/linux/sched.h
