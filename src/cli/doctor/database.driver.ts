// Checks the database for `strongroom doctor`: whether it exists, is intact, and has a schema that this executable
// supports. Effects: reads the database on a separate connection, next to the daemon's.

import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../../base/fault.ts'
import { databaseFile, leftoversOfRecords } from '../../host/state-files.ts'
import { inspectDatabase } from '../../store/inspect.ts'
import type { DatabaseFacts } from './database.plan.ts'

/** Never throws. */
export function collectDatabaseFacts(stateDir: string, { isRoot }: { readonly isRoot: boolean }): DatabaseFacts {
  const path = join(stateDir, databaseFile)
  try {
    const sizeBytes = existsSync(path) ? statSync(path).size : 0
    if (sizeBytes === 0) return { kind: 'none', path, leftovers: leftoversOfRecords(stateDir) }
    if (!isRoot) return { kind: 'unread', path, reason: 'needs root' }
    return { kind: 'read', path, sizeBytes, ...inspectDatabase(path) }
  } catch (error) {
    return { kind: 'unread', path, reason: messageOf(error) }
  }
}
