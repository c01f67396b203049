// Takes commands that ran beside the daemon into the record of commands, each once. Effects: the store, and the files
// that the commands left.

import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { removeHostCommand, waitingHostCommands } from '../../host/host-commands.ts'
import type { LedgerStore } from '../../store/db.ts'
import { appendAudit, settleAudit } from '../../store/ledger/audit.query.ts'
import { readMeta, swapMeta } from '../../store/ledger/meta.query.ts'

/** Name of the file that was taken last: its removal may have been cut off after the commit. */
const takenName = 'host_command_taken'

export type HostCommandDeps = {
  readonly stateDir: string
  readonly ledger: LedgerStore
  readonly log: Logger
  /** False on trial: what an upgrade records meanwhile goes if it returns. */
  readonly mayWrite: () => boolean
}

/** Never throws: a command that cannot be recorded now waits for the next call. */
export function takeHostCommands({ stateDir, ledger, log, mayWrite }: HostCommandDeps): void {
  if (!mayWrite()) return
  try {
    for (const { name, command } of waitingHostCommands(stateDir)) {
      if (command === null) log.warn('a record of a command on this host cannot be read and is removed', { name })
      else {
        const isNew = ledger.transact(tx => {
          if (readMeta(tx, takenName) === name) return false
          const { atMs, uid, gid, pid, operation, arguments: given, result } = command
          const actor = uid === 0 ? 'root' : `uid ${uid}`
          const who = { uid, gid, pid, actor, role: 'admin', socket: 'admin' } as const
          const seq = appendAudit(tx, { ...who, atMs, operation, arguments: given, result: null, refused: false })
          settleAudit(tx, { seq, result, nowMs: atMs })
          swapMeta(tx, takenName, name)
          return true
        })
        if (isNew) log.info('command on this host', { ...command })
      }
      removeHostCommand(stateDir, name)
    }
  } catch (error) {
    log.error('commands on this host could not be recorded; they are tried again', { reason: messageOf(error) })
  }
}
