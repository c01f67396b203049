// The files of the state directory that cannot be made again: what a backup keeps, and what shows that there were
// records. Effects: looks which of them are there.

import { existsSync } from 'node:fs'
import { join } from 'node:path'

export const databaseFile = 'strongroom.db'

/**
 * Rows of usage that the database does not have yet. A backup adds them to its copy of the database, and has no such
 * file: a restored daemon would read rows of another database.
 */
export const usageJournalFile = 'usage-journal.bin'

/** Paths below the state directory; of a directory every file in it, at most two levels deep. */
export const STATE_FILES = [
  'operator-key.pem',
  'operator-key.pub.pem',
  'operator-keys.txt',
  /** Backups of former releases, whose hosts chose the gateway keys of instances, have it. Nothing reads it. */
  'gateway-key.secret',
  'control.key',
  'log-key.pem',
  'ca',
  'guest-ca',
  'tls',
  'acme',
  'simulator',
  'allowlist.json',
  'kds',
] as const

/** A restore gathers here what it is about to put in place; the daemon does not start beside it without records. */
export const restoringDir = 'restoring'

/** The daemon makes these at its first start, after the database. */
const MADE_WITH_RECORDS = ['operator-keys.txt', 'control.key', 'ca', 'guest-ca', restoringDir] as const

/**
 * Names of what an appliance with records leaves in its state directory. The operator key alone is none: an operator
 * may put it there before the first start, when there is no database file either.
 */
export function leftoversOfRecords(stateDir: string): string[] {
  const there = (name: string) => existsSync(join(stateDir, name))
  const withKey = there(databaseFile) ? ['operator-key.pem' as const] : []
  return [...withKey, ...MADE_WITH_RECORDS].filter(there)
}
