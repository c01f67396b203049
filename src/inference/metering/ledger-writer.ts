// The serving thread's interface to the ledger's thread: one batch at a time. Effects: a thread.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { beginThread, reasonOf } from '../../base/work/request-thread.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import { notWritten, type Outcome } from './batch.ts'
import type { JournalRange } from './journal/journal.ts'
import { CHANGES, type FromThread, type ToThread } from './ledger-thread.ts'

export type LedgerWriter = {
  /**
   * Writes one batch at a time; if `range` is not null, the thread reads it from the journal. Never rejects. A thread
   * that ends or is late may still have written the batch.
   */
  readonly write: (rows: readonly Usage[], range: JournalRange | null) => Promise<Outcome>
  /** Changes of the database by connections other than the thread's. */
  readonly changes: { readonly beat: () => number; readonly mark: () => number }
  /** Reports whether the thread's database is open. A thread that ends is replaced. */
  readonly isAlive: () => boolean
  /** Closes the thread after the batch being written. Resolves once its connection is closed, or it is late. */
  readonly close: () => Promise<void>
}

type WriterDeps = {
  readonly path: string
  /** Path of the journal; null if there is none. */
  readonly journal: string | null
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
}

/** Longer than the thread waits for the database's lock (`openBeside`). */
export const replyTimeoutMs = 10_000
export const restartPauseMs = 10_000
const closeTimeoutMs = 5_000

/**
 * Starts a thread for the open database at `path`. Callers do not wait for it; until it is ready, they write
 * themselves.
 */
export function startLedgerWriter({ path, journal, clock, log }: WriterDeps): LedgerWriter {
  const closing = new AbortController()
  const begin = () =>
    beginThread<ToThread, FromThread>({ name: 'ledger', file: 'inference/metering/ledger-thread', clock })
  let thread = begin()
  const changes = new Int32Array(new SharedArrayBuffer(CHANGES.length * Int32Array.BYTES_PER_ELEMENT))
  let isOpen = false
  let last: Promise<unknown> = Promise.resolve()
  const follow = async () => {
    for (;;) {
      const reply = await thread.askInTime({ kind: 'open', path, journal, changes }, replyTimeoutMs)
      isOpen = reply.kind === 'opened'
      if (!isOpen) thread.end(reasonOf(reply))
      const reason = await thread.ended
      isOpen = false
      if (closing.signal.aborted) return
      log.error('the thread of the usage ledger has ended; clients wait for the disk until another one has started', {
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
    changes: {
      beat: () => Atomics.load(changes, CHANGES.beat),
      mark: () => Atomics.load(changes, CHANGES.mark),
    },
    write: async (rows, range) => {
      const asked = thread
      // JSON takes a third of this thread's time for copying the objects.
      const message: ToThread =
        range === null ? { kind: 'write', rows: JSON.stringify(rows) } : { kind: 'import', range, count: rows.length }
      const replied = asked.askInTime(message, replyTimeoutMs)
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
