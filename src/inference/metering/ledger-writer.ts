// The ledger's thread as the serving thread sees it: takes one batch at a time. Effects: a thread.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { beginThread, reasonOf } from '../../base/work/asked-thread.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import { notWritten, type Outcome } from './batch.ts'
import type { FromThread, ToThread } from './ledger-thread.ts'

export type LedgerWriter = {
  /** One batch at a time. Never rejects. A thread that ends, or is late, may have written the batch all the same. */
  readonly write: (rows: readonly Usage[]) => Promise<Outcome>
  /** From when its database is open until its end. Another thread follows one that has ended. */
  readonly isAlive: () => boolean
  /** After the batch that is being written. Resolves once its connection is closed, or it is late. */
  readonly close: () => Promise<void>
}

type WriterDeps = { readonly path: string; readonly clock: Pick<Clock, 'sleep'>; readonly log: Logger }

/** Longer than the thread waits for the database's lock (`openBeside`). */
export const replyTimeoutMs = 10_000
export const restartPauseMs = 10_000
const closeTimeoutMs = 5_000

/** Begins a thread for the database at `path`, which is open. Nobody waits for it: until it lives others write. */
export function startLedgerWriter({ path, clock, log }: WriterDeps): LedgerWriter {
  const closing = new AbortController()
  const begin = () =>
    beginThread<ToThread, FromThread>({ name: 'ledger', file: 'inference/metering/ledger-thread', clock })
  let thread = begin()
  let isOpen = false
  let last: Promise<unknown> = Promise.resolve()
  const follow = async () => {
    for (;;) {
      const reply = await thread.askInTime({ kind: 'open', path }, replyTimeoutMs)
      isOpen = reply.kind === 'opened'
      if (!isOpen) thread.end(reasonOf(reply))
      const reason = await thread.ended
      isOpen = false
      if (closing.signal.aborted) return
      log.error('the thread of the usage ledger has ended; until another one lives clients wait for the disk', {
        reason,
      })
      await pause(clock, restartPauseMs, closing.signal)
      if (closing.signal.aborted) return
      thread = begin()
    }
  }
  void follow()
  return {
    isAlive: () => isOpen,
    write: async rows => {
      const asked = thread
      // JSON: a third of the time of this thread that a copy of the objects takes.
      const replied = asked.askInTime({ kind: 'write', rows: JSON.stringify(rows) }, replyTimeoutMs)
      last = replied
      const reply = await replied
      if (reply.kind === 'written') return reply.outcome
      asked.end(reasonOf(reply))
      return notWritten(new Error(reasonOf(reply)))
    },
    close: async () => {
      closing.abort()
      if (isOpen) {
        await last
        await thread.askInTime({ kind: 'close' }, closeTimeoutMs)
      }
      thread.end('it was closed')
    },
  }
}
