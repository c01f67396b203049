// The thread that writes the usage ledger: a commit waits for the disk, which would block every client on the serving
// thread. Effects: SQL on a separate connection. ledger-writer.ts starts it.

import { parentPort } from 'node:worker_threads'
import { messageOf } from '../../base/fault.ts'
import { compileAsUsual } from '../../base/work/compiler.ts'
import type { ThreadRefusal } from '../../base/work/request-thread.ts'
import { openBeside } from '../../store/db.ts'
import { prepareChangeMark } from '../../store/directory/gateway-key.query.ts'
import { prepareUsageAppend } from '../../store/directory/usage/usage.query.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import { notWritten, type Outcome, writeBatch } from './batch.ts'
import { type JournalRange, JournalReader } from './journal/journal.ts'

/**
 * Indices in the memory that the threads share: how often this one has read the change mark of its connection, and that
 * mark.
 */
export const CHANGES = { beat: 0, mark: 1, length: 2 } as const
/** Several times within the time in which changes by others must be seen (`othersSeenMs` in stored-keys.ts). */
const lookMs = 250
/** How long a row of the journal may be missing on the disk. */
const syncMs = 100

/** One batch at a time: the next is sent after the reply. */
export type ToThread =
  /** `journal`: path of the file with rows; null if there is none. `changes`: see `CHANGES`. */
  | { readonly kind: 'open'; readonly path: string; readonly journal: string | null; readonly changes: Int32Array }
  /** Rows, as JSON. */
  | { readonly kind: 'write'; readonly rows: string }
  /** Number of rows that the journal has in this range. */
  | { readonly kind: 'import'; readonly range: JournalRange; readonly count: number }
  | { readonly kind: 'close' }

export type FromThread =
  | { readonly kind: 'opened' }
  | { readonly kind: 'written'; readonly outcome: Outcome }
  | { readonly kind: 'closed' }
  | ThreadRefusal

type OpenedLedger = ReturnType<typeof openBeside> & {
  readonly append: ReturnType<typeof prepareUsageAppend>
  readonly journal: JournalReader | null
}

function open(path: string, journal: string | null): OpenedLedger {
  const beside = openBeside(path)
  return {
    ...beside,
    append: prepareUsageAppend(beside.directory.db),
    journal: journal === null ? null : new JournalReader(journal),
  }
}

/** Publishes the change mark. Commits of this connection do not move it. */
function pushChanges({ directory }: OpenedLedger, changes: Int32Array): void {
  const mark = prepareChangeMark(directory.db)
  setInterval(() => {
    try {
      Atomics.store(changes, CHANGES.mark, mark.others())
      Atomics.add(changes, CHANGES.beat, 1)
    } catch {
      // Without a beat, the serving thread checks itself.
    }
  }, lookMs).unref()
}

/**
 * Writes the journal to the disk. A disk that fails ends this thread; the serving thread then writes rows to the
 * database itself.
 */
function syncJournal({ journal }: OpenedLedger): void {
  if (journal !== null) setInterval(() => journal.sync(), syncMs).unref()
}

function write({ directory, append }: OpenedLedger, rows: readonly Usage[]): Outcome {
  return writeBatch({ store: directory, append }, rows)
}

function importRows(opened: OpenedLedger, { range, count }: Extract<ToThread, { kind: 'import' }>): Outcome {
  const rows = opened.journal?.rows(range) ?? []
  if (rows.length === count) return write(opened, rows)
  return notWritten(new Error(`the journal has ${rows.length} rows where ${count} were written`))
}

if (parentPort !== null) {
  compileAsUsual()
  const port = parentPort
  const say = (message: FromThread) => port.postMessage(message)
  let opened: OpenedLedger | null = null
  port.on('message', (message: ToThread) => {
    try {
      if (message.kind === 'open') {
        opened = open(message.path, message.journal)
        pushChanges(opened, message.changes)
        syncJournal(opened)
        say({ kind: 'opened' })
      } else if (message.kind === 'write' && opened !== null) {
        say({ kind: 'written', outcome: write(opened, JSON.parse(message.rows) as Usage[]) })
      } else if (message.kind === 'import' && opened !== null) {
        say({ kind: 'written', outcome: importRows(opened, message) })
      } else if (message.kind === 'close') {
        opened?.close()
        opened?.journal?.close()
        say({ kind: 'closed' })
        port.close()
      }
    } catch (error) {
      say({ kind: 'refused', reason: messageOf(error) })
    }
  })
}
