// Failed instances: of a host by their failure code, and of an organization. Effects: SQL.

import { and, count, eq } from 'drizzle-orm'
import { type DirectoryDb, prepareRaw } from '../db.ts'
import { instances } from './instance.table.ts'

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

/**
 * Returns a function that counts the instances of a host that are failed now. Each host of a
 * fleet counts the instances of lost hosts too.
 */
export function prepareInstanceFailures(db: DirectoryDb, hostId: string): () => InstanceFailures {
  const lastReady = prepareRaw<{ atMs: number | null }>(
    db,
    'SELECT max(ready_at_ms) AS atMs FROM instances WHERE host_id = ?',
  )
  const counts = prepareRaw<FailedInstances>(
    db,
    `SELECT coalesce(failure_code, 'internal') AS code, count(*) AS count, min(changed_at_ms) AS firstMs,
      max(changed_at_ms) AS lastMs, sum(changed_at_ms > ?) AS sinceReady
    FROM instances WHERE status = 'failed' AND (host_id = ? OR failure_code = 'host_lost') GROUP BY 1 ORDER BY 1`,
  )
  return () => {
    const lastReadyMs = lastReady.get(hostId)?.atMs ?? null
    return { byCode: counts.all(lastReadyMs ?? 0, hostId), lastReadyMs }
  }
}

export function countFailedInstances(db: DirectoryDb, organizationId: string): number {
  const isFailed = and(eq(instances.organizationId, organizationId), eq(instances.status, 'failed'))
  return db.select({ failed: count() }).from(instances).where(isFailed).get()?.failed ?? 0
}
