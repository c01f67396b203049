// Failed instances by their failure code, for the list of problems. Effects: SQL.

import { type DirectoryDb, prepareRaw } from '../db.ts'

export type FailedInstances = {
  readonly code: string
  readonly count: number
  /** When the first and the last of them failed. */
  readonly firstMs: number
  readonly lastMs: number
  /** How many of them failed after an instance last became ready. */
  readonly sinceReady: number
}

export type InstanceFailures = {
  readonly byCode: readonly FailedInstances[]
  /** When an instance last became ready; null if none ever did. */
  readonly lastReadyMs: number | null
}

/** Returns a function that counts the instances that are failed now. */
export function prepareInstanceFailures(db: DirectoryDb): () => InstanceFailures {
  const lastReady = prepareRaw<{ atMs: number | null }>(db, 'SELECT max(ready_at_ms) AS atMs FROM instances')
  const counts = prepareRaw<FailedInstances>(
    db,
    `SELECT coalesce(failure_code, 'internal') AS code, count(*) AS count, min(changed_at_ms) AS firstMs,
      max(changed_at_ms) AS lastMs, sum(changed_at_ms > ?) AS sinceReady
    FROM instances WHERE status = 'failed' GROUP BY 1 ORDER BY 1`,
  )
  return () => {
    const lastReadyMs = lastReady.get()?.atMs ?? null
    return { byCode: counts.all(lastReadyMs ?? 0), lastReadyMs }
  }
}
