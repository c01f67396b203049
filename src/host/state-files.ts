// The files of the state directory that cannot be created again: those of a backup, and those that show that there were
// records. Effects: checks which of them exist.

import { existsSync } from 'node:fs'
import { join } from 'node:path'

export const databaseFile = 'strongroom.db'
/** Encrypted snapshots of instances. In no backup, because they are as large as what they hold. */
export const snapshotsDirectory = 'snapshots'

/**
 * Rows of usage that the database does not have yet. A backup adds them to its copy of the database, and has no such
 * file, because a restored daemon would read rows of another database.
 */
export const usageJournalFile = 'usage-journal.bin'

/** Paths below the state directory; for a directory, every file in it, at most two levels deep. */
export const STATE_FILES = [
  'operator-key.pem',
  'operator-key.pub.pem',
  'operator-keys.txt',
  /** Contained in backups of former releases, whose hosts chose the gateway keys of instances. Nothing reads it. */
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
  /** Receivers and Prometheus have copies of these secrets. */
  'alerts-secret',
  'metrics-token',
] as const

/**
 * A restore collects files here before it puts them in place. If it exists without records, the daemon does not start.
 */
export const restoringDir = 'restoring'

/** Files that the daemon creates at its first start, after the database. */
const MADE_WITH_RECORDS = ['operator-keys.txt', 'control.key', 'ca', 'guest-ca', restoringDir] as const

/**
 * Returns the names of files that an appliance with records leaves in its state directory. The operator key alone does
 * not count, because an operator may put it there before the first start, when there is no database file either.
 */
export function leftoversOfRecords(stateDir: string): string[] {
  const there = (name: string) => existsSync(join(stateDir, name))
  const withKey = there(databaseFile) ? ['operator-key.pem' as const] : []
  return [...withKey, ...MADE_WITH_RECORDS].filter(there)
}
