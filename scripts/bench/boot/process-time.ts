// Processor time of a process, such as the QEMU of a VM. Effects: reads /proc, waits.

import { readFileSync } from 'node:fs'
import { round } from '../in-netns.ts'

/** USER_HZ is 100 everywhere that this runs. */
const tickMs = 10

/** Share of one processor that it takes during this time, in percent. */
export async function cpuPercent(pid: number, windowMs: number): Promise<number> {
  const before = cpuTicks(pid)
  await Bun.sleep(windowMs)
  return round(((cpuTicks(pid) - before) * tickMs * 100) / windowMs)
}

/** proc_pid_stat(5): utime and stime. */
function cpuTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}
