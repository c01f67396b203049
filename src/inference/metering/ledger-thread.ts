// The thread that writes the usage ledger: a commit waits for the disk, and on the serving thread every client would
// wait with it. Effects: SQL on a connection of its own. ledger-writer.ts starts it.

import { parentPort } from 'node:worker_threads'
import { messageOf } from '../../base/fault.ts'
import type { Refused } from '../../base/work/asked-thread.ts'
import { compileAsUsual } from '../../base/work/compiler.ts'
import { openBeside } from '../../store/db.ts'
import { prepareUsageAppend } from '../../store/directory/usage/usage.query.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'
import { type Outcome, writeBatch } from './batch.ts'

/** One at a time: the next follows the reply. */
export type ToThread =
  | { readonly kind: 'open'; readonly path: string }
  /** Rows, as JSON. */
  | { readonly kind: 'write'; readonly rows: string }
  | { readonly kind: 'close' }

export type FromThread =
  | { readonly kind: 'opened' }
  | { readonly kind: 'written'; readonly outcome: Outcome }
  | { readonly kind: 'closed' }
  | Refused

type Opened = ReturnType<typeof openBeside> & { readonly append: ReturnType<typeof prepareUsageAppend> }

function open(path: string): Opened {
  const beside = openBeside(path)
  return { ...beside, append: prepareUsageAppend(beside.directory.db) }
}

if (parentPort !== null) {
  compileAsUsual()
  const port = parentPort
  const say = (message: FromThread) => port.postMessage(message)
  let opened: Opened | null = null
  port.on('message', (message: ToThread) => {
    try {
      if (message.kind === 'open') {
        opened = open(message.path)
        say({ kind: 'opened' })
      } else if (message.kind === 'write' && opened !== null) {
        say({
          kind: 'written',
          outcome: writeBatch({ store: opened.directory, append: opened.append }, JSON.parse(message.rows) as Usage[]),
        })
      } else if (message.kind === 'close') {
        opened?.close()
        say({ kind: 'closed' })
        port.close()
      }
    } catch (error) {
      say({ kind: 'refused', reason: messageOf(error) })
    }
  })
}
