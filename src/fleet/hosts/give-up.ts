// The end of instances whose host was lost or is forgotten. Effects: statements to PostgreSQL.

import { INSTANCE_FAILURES } from '../../contract/http/instance.ts'
import type { NumberedTransaction } from '../postgres.ts'

/**
 * Fails what a lost host had; returns the number of instances. The hours of each end with the host's last renewal.
 * Instances that are being deleted wait for the host to end their VMs.
 */
export async function failInstancesOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  const rows = await tx.query(
    `WITH failed AS (
       UPDATE instances i SET status = 'failed', failure_code = 'host_lost', failure_message = $2,
         changed_at_ms = greatest(i.changed_at_ms, ${lastSeen})
       WHERE host_id = $1 AND status IN ('provisioning', 'ready') RETURNING id, changed_at_ms
     )
     INSERT INTO instance_changes (instance_id, status, at_ms) SELECT id, 'failed', changed_at_ms FROM failed
     RETURNING instance_id`,
    [hostId, INSTANCE_FAILURES.host_lost],
  )
  return rows.length
}

/** As above; besides, what its owner has deleted is terminated: nobody is left to end its VM. */
export async function endInstancesOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  const failed = await failInstancesOf(tx, hostId)
  const ended = await tx.query(
    `WITH ended AS (
       UPDATE instances i SET status = 'terminated', terminated_reason = 'deleted_via_api',
         changed_at_ms = greatest(i.changed_at_ms, ${lastSeen}), terminated_at_ms = greatest(i.changed_at_ms, ${lastSeen})
       WHERE host_id = $1 AND desired = 'absent' AND status <> 'terminated' RETURNING id, changed_at_ms
     )
     INSERT INTO instance_changes (instance_id, status, at_ms) SELECT id, 'terminated', changed_at_ms FROM ended
     ON CONFLICT (instance_id, status) DO NOTHING RETURNING instance_id`,
    [hostId],
  )
  return failed + ended.length
}

/** Milliseconds; a host that never renewed has none. */
const lastSeen = `(SELECT coalesce((extract(epoch FROM max(renewed_at)) * 1000)::bigint, 0) FROM leases WHERE host_id = $1)`
