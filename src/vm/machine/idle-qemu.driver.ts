// Finds idle QEMUs of running VMs: stopped by a signal or a debugger, or silent on the second monitor. Effects: reads
// /proc, connects to sockets of VMs.

import { connectQmp, qmpTimeoutMs } from '../../host/qemu/qmp.ts'
import { readProc } from '../../linux/stat.ts'
import type { LedgerDb } from '../../store/db.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import { vmById } from '../../store/ledger/vm.query.ts'
import { vmPaths } from '../launch.plan.ts'
import { idleQemu, type Leak } from './leaks.plan.ts'

/** Time for all VMs together. VMs not probed by then are left out of the result. */
const wholeMs = 20_000
/** No share: requests of the daemon, in turns over all VMs. */
const askedAtOnceMax = 32
/** Long, because a loaded machine may be slow. */
const answerMs = qmpTimeoutMs.blocking

/** Returns the idle QEMUs. Never throws, whatever QEMU does. */
export async function idleQemus({
  db,
  stateDir,
}: {
  readonly db: LedgerDb
  readonly stateDir: string
}): Promise<Leak[]> {
  const waiting = listResources(db, 'qemu').filter(row => vmById(db, row.vmId)?.state === 'running')
  const deadlineMs = performance.now() + wholeMs
  const leaks: Leak[] = []
  const work = async () => {
    for (let row = waiting.shift(); row !== undefined && performance.now() < deadlineMs; row = waiting.shift()) {
      const [pid = '', startTicks = ''] = row.name.split(':')
      const state = stateOf(Number(pid), startTicks)
      // The process has ended, or is not started yet; other checks report that.
      if (state === null) continue
      const found = { name: row.name, vm: row.vmId }
      if (STOPPED.has(state)) leaks.push(idleQemu(found, 'stopped'))
      else if (!(await answers(vmPaths(stateDir, row.vmId).qmpRescue))) leaks.push(idleQemu(found, 'unanswered'))
    }
  }
  await Promise.all(Array.from({ length: askedAtOnceMax }, work))
  return leaks
}

/** proc_pid_stat(5): stopped by a signal or a tracer. */
const STOPPED = new Set(['T', 't'])

/** Returns the state of a process; null if it has ended. */
function stateOf(pid: number, startTicks: string): string | null {
  if (!Number.isInteger(pid)) return null
  const text = readProc(pid, 'stat')
  if (text === null) return null
  // The state is field 3, the start time field 22; the name before them may contain blanks and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return fields[22 - 3] === startTicks ? (fields[0] ?? null) : null
}

/** Reports whether QEMU answers. The daemon uses the first monitor; only an operator uses the second. */
async function answers(path: string): Promise<boolean> {
  try {
    const qmp = await connectQmp(path, { timeoutMs: answerMs, onEvent: () => {}, onClose: () => {} })
    try {
      await qmp.command('query-status', answerMs)
      return true
    } finally {
      qmp.close()
    }
  } catch {
    return false
  }
}
