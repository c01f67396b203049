// Writes one batch of usage rows into the store, in one transaction. Effects: SQL.

import { messageOf, systemErrorCode } from '../../base/fault.ts'
import type { DirectoryStore } from '../../store/db.ts'
import type { Usage } from '../../store/directory/usage/usage.table.ts'

/** Returns the number of rows that were not stored before. */
export type Append = (rows: readonly Usage[]) => number

export type Ledger = { readonly store: Pick<DirectoryStore, 'transact'>; readonly append: Append }

/** Outcome in a form that another thread can send: errors are strings. */
export type Outcome = {
  /** False if nothing was written and the batch must be retried. */
  readonly isWritten: boolean
  /** Number of rows that were not stored before. */
  readonly added: number
  /** Ids of rows that the store will never take. */
  readonly refused: readonly string[]
  /** Why rows were refused, or nothing was written. */
  readonly error: string | null
}

/** Writes the batch. A bad row affects only itself; after any other failure nothing is written. Never throws. */
export function writeBatch({ store, append }: Ledger, batch: readonly Usage[]): Outcome {
  try {
    return { isWritten: true, added: store.transact(() => append(batch)), refused: [], error: null }
  } catch (error) {
    return isConstraint(error) ? writeOneByOne({ store, append }, batch) : notWritten(error)
  }
}

export function notWritten(error: unknown): Outcome {
  return { isWritten: false, added: 0, refused: [], error: messageOf(error) }
}

function writeOneByOne({ store, append }: Ledger, batch: readonly Usage[]): Outcome {
  const refused: { readonly id: string; readonly error: unknown }[] = []
  try {
    const added = store.transact(() => {
      let sum = 0
      for (const row of batch) {
        try {
          sum += append([row])
        } catch (error) {
          if (!isConstraint(error)) throw error
          refused.push({ id: row.id, error })
        }
      }
      return sum
    })
    const [first] = refused
    return {
      isWritten: true,
      added,
      refused: refused.map(({ id }) => id),
      error: first === undefined ? null : messageOf(first.error),
    }
  } catch (error) {
    return notWritten(error)
  }
}

/** Reports whether the row itself is at fault (an organization that does not exist), not the disk. */
function isConstraint(error: unknown): boolean {
  const errors = [error, error instanceof Error ? error.cause : null]
  return errors.some(error => systemErrorCode(error)?.startsWith('SQLITE_CONSTRAINT'))
}
