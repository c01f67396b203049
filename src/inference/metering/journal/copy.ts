// Rows of the usage journal in the copy of the database that goes into a backup. Effects: reads the journal, writes the
// copy.
//
// A backup contains no journal: its positions belong to the database of this machine. Rows are added by id, so a row
// that the copy already has is counted once.

import { statSync } from 'node:fs'
import { join } from 'node:path'
import { Fault } from '../../../base/fault.ts'
import { usageJournalFile } from '../../../host/state-files.ts'
import { openStore } from '../../../store/db.ts'
import { prepareUsageAppend } from '../../../store/directory/usage/usage.query.ts'
import { writeBatch } from '../batch.ts'
import { readUnbooked } from './journal.ts'

/**
 * Reads the rows that the database may lack, also while a daemon writes. Call the returned function with the path of a
 * copy that was made afterwards. A row that this schema refuses is left out, as the daemon itself leaves it out.
 * Fault host.disk_full: rows did not get into the copy's file.
 */
export function readJournalFor(stateDir: string): (copy: string) => void {
  const rows = readUnbooked(join(stateDir, usageJournalFile))
  return copy => {
    if (rows.length === 0) return
    const store = openStore(copy)
    try {
      const append = prepareUsageAppend(store.directory.db)
      const { isWritten, error } = writeBatch({ store: store.directory, append }, rows)
      if (!isWritten) throw new Error(`cannot add the rows of the usage journal to the backup: ${error}`)
    } finally {
      store.close()
    }
    // The backup takes the file alone. On a full disk the last connection cannot move the rows into it.
    const log = `${copy}-wal`
    if ((statSync(log, { throwIfNoEntry: false })?.size ?? 0) > 0) {
      throw new Fault('host.disk_full', `${log} has rows of the usage journal that are missing in the copy`)
    }
  }
}
