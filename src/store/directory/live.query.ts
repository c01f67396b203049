// Short texts that change with the directory, for the console. Effects: reads SQL, a few milliseconds.

import { type DirectoryDb, prepareRaw } from '../db.ts'
import { LIVING_STATES } from './build.query.ts'

export type DirectoryMarks = {
  readonly organizations: string
  readonly keys: string
  readonly instances: string
  readonly builds: string
  readonly usage: string
}

/** Words of the schema alone. */
const living = LIVING_STATES.map(state => `'${state}'`).join(', ')

/** Commands of operators are in none of these: the record of commands has their times. */
export function directoryMarks(db: DirectoryDb): () => DirectoryMarks {
  const asked = prepareRaw<Record<keyof DirectoryMarks, string>>(
    db,
    `SELECT
      (SELECT count(*) || ' ' || total(deleted_at_ms) FROM organizations) AS organizations,
      (SELECT count(*) || ' ' || total(last_used_at_ms) || ' ' || total(revoked_at_ms) FROM keys)
        || (SELECT ' ' || count(*) || ' ' || total(last_used_at_ms) || ' ' || total(revoked_at_ms) FROM gateway_keys)
        AS keys,
      (SELECT coalesce(max(id), 0) FROM instance_changes)
        || (SELECT ' ' || count(*) || ' ' || total(changed_at_ms) || ' ' || total(egress_bytes) FROM instances)
        AS instances,
      (SELECT count(*) || ' ' || total(started_at_ms) || ' ' || total(finished_at_ms) || ' ' || total(closed_at_ms)
        || ' ' || total(removed_at_ms) || ' ' || total(disk_bytes) FROM builds)
        || (SELECT ' ' || coalesce(group_concat(id || state), '') FROM builds WHERE state IN (${living})) AS builds,
      (SELECT total(requests) || ' ' || total(prompt_tokens) || ' ' || total(completion_tokens) FROM usage_months)
        AS usage`,
  )
  return () => asked.get() ?? { organizations: '', keys: '', instances: '', builds: '', usage: '' }
}
