// Last output of QEMU for the operator: in the daemon's log and the VM's journal (`strongroom instance logs`).
// Effects: reads QEMU's log, appends events.

import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { systemErrorCode } from '../base/fault.ts'
import { harmless } from '../base/harmless.ts'
import type { Logger } from '../base/log.ts'
import type { LedgerDb } from '../store/db.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { VmEngine } from '../vm/engine.ts'

export type FailuresDeps = {
  readonly engine: Pick<VmEngine, 'onChange' | 'view'>
  readonly ledger: LedgerDb
  /** Where QEMU's stdout and stderr of a VM are kept. */
  readonly qemuLog: (vmId: string) => string
  readonly clock: Clock
  readonly log: Logger
}

const outputBytesMax = 2_048

/** Logs an error for each VM that fails from now on, with QEMU's last output, and journals it as `vm.last_words`. */
export function reportFailures({ engine, ledger, qemuLog, clock, log }: FailuresDeps): void {
  engine.onChange(vmId => {
    const vm = engine.view(vmId)
    if (vm?.state !== 'failed') return
    let qemu = ''
    try {
      qemu = readCrashOutput(qemuLog(vmId))
    } catch (error) {
      log.warn('the log of QEMU cannot be read', { vm: vmId, error })
    }
    log.error('VM failed', { vm: vmId, failure_code: vm.failureCode, ...(qemu === '' ? {} : { qemu }) })
    if (qemu === '') return
    noteEvent(ledger, log, { nowMs: clock.nowMs(), kind: 'vm.last_words', subject: vmId, detail: { qemu } })
  })
}

/**
 * Last 2 KiB of a file, in whole lines if it has more than one, control characters made visible; '' without a file. A
 * VM may have been able to write there, so links are not followed and only a regular file is read. Throws what
 * open(2) throws.
 */
export function readCrashOutput(path: string): string {
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return ''
    throw error
  }
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile()) throw new Error(`${path} is not a regular file`)
    const start = Math.max(0, stat.size - outputBytesMax)
    const bytes = new Uint8Array(outputBytesMax)
    const text = new TextDecoder().decode(bytes.subarray(0, readSync(fd, bytes, 0, outputBytesMax, start)))
    const lineEnd = start === 0 ? -1 : text.indexOf('\n')
    return harmless(text.slice(lineEnd + 1).trimEnd())
  } finally {
    closeSync(fd)
  }
}
