// The ledger's thread as the serving thread sees it: takes one batch at a time. Effects: a thread.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
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
  let thread = beginThread()
  let isOpen = false
  let last: Promise<unknown> = Promise.resolve()
  const askInTime = (asked: Thread, message: ToThread, ms = replyTimeoutMs) => within(clock, ms, asked.ask(message))
  const follow = async () => {
    for (;;) {
      const reply = await askInTime(thread, { kind: 'open', path })
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
      thread = beginThread()
    }
  }
  void follow()
  return {
    isAlive: () => isOpen,
    write: async rows => {
      const asked = thread
      // JSON: a third of the time of this thread that a copy of the objects takes.
      const replied = askInTime(asked, { kind: 'write', rows: JSON.stringify(rows) })
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
        await askInTime(thread, { kind: 'close' }, closeTimeoutMs)
      }
      thread.end('it was closed')
    },
  }
}

type Thread = {
  /** The reply; `refused` once it has ended. One at a time. */
  readonly ask: (message: ToThread) => Promise<FromThread>
  /** Nobody hears it from now on. A transaction that it is in is carried out, or rolled back. */
  readonly end: (reason: string) => void
  readonly ended: Promise<string>
}

function beginThread(): Thread {
  const worker = new Worker(threadUrl(), { name: 'ledger', smol: true })
  const { promise: ended, resolve: noteEnd } = Promise.withResolvers<string>()
  let refusal: FromThread | null = null
  let answer: ((reply: FromThread) => void) | null = null
  const end = (reason: string) => {
    if (refusal !== null) return
    refusal = { kind: 'refused', reason }
    answer?.(refusal)
    noteEnd(reason)
    worker.terminate()
  }
  worker.addEventListener('message', (event: MessageEvent<FromThread>) => answer?.(event.data))
  worker.addEventListener('error', event => end(event.message))
  worker.addEventListener('close', () => end('it gave no reason'))
  const ask = (message: ToThread) =>
    new Promise<FromThread>(resolve => {
      if (refusal !== null) return resolve(refusal)
      answer = resolve
      worker.postMessage(message)
    })
  return { ask, end, ended }
}

/** `refused` after that time. */
async function within(clock: Pick<Clock, 'sleep'>, ms: number, reply: Promise<FromThread>): Promise<FromThread> {
  const done = new AbortController()
  const late = pause(clock, ms, done.signal).then(
    (): FromThread => ({ kind: 'refused', reason: `no reply within ${ms} ms` }),
  )
  const first = await Promise.race([reply, late])
  done.abort()
  return first
}

function reasonOf(reply: FromThread): string {
  return reply.kind === 'refused' ? reply.reason : `it said ${reply.kind}`
}

/** The executable holds further entry points by their path from src, transpiled (scripts/build/recipes.ts). */
function threadUrl(): URL {
  const isCompiled = import.meta.url.includes('/$bunfs/')
  return new URL(isCompiled ? './inference/metering/ledger-thread.js' : './ledger-thread.ts', import.meta.url)
}
