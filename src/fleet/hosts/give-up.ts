// Ends instances and builds of a host that was lost or forgotten. Effects: statements to PostgreSQL.

import { INSTANCE_FAILURES } from '../../contract/http/instance.ts'
import { attemptsMax } from '../../store/directory/attempt.query.ts'
import { readHosts } from '../directory/feed.ts'
import { otherHosts, placementOf } from '../directory/placement.plan.ts'
import type { NumberedTransaction } from '../postgres.ts'

/**
 * Gives up the instances of a silent host, and returns their number. Instances that were not ready move to other hosts,
 * once and if there is room. The others fail, and their usage ends with the host's last renewal. Instances to be
 * deleted are terminated, because a deletion must not wait for a host that may never return. If it returns, it ends all
 * their VMs.
 */
export async function giveUpInstancesOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  const given = await giveElsewhere(tx, hostId)
  const failed = await tx.query(
    `WITH failed AS (
       UPDATE instances i SET status = 'failed', failure_code = 'host_lost', failure_message = $2,
         changed_at_ms = greatest(i.changed_at_ms, ${lastSeen})
       WHERE host_id = $1 AND status IN ('provisioning', 'ready') RETURNING id, changed_at_ms
     )
     INSERT INTO instance_changes (instance_id, status, at_ms) SELECT id, 'failed', changed_at_ms FROM failed
     RETURNING instance_id`,
    [hostId, INSTANCE_FAILURES.host_lost],
  )
  const ended = await tx.query(
    `WITH ended AS (
       UPDATE instances i SET status = 'terminated', terminated_reason = coalesce(i.terminated_reason, 'deleted_via_api'),
         changed_at_ms = greatest(i.changed_at_ms, ${lastSeen}), terminated_at_ms = greatest(i.changed_at_ms, ${lastSeen})
       WHERE host_id = $1 AND desired = 'absent' AND status <> 'terminated' RETURNING id, changed_at_ms
     )
     INSERT INTO instance_changes (instance_id, status, at_ms) SELECT id, 'terminated', changed_at_ms FROM ended
     ON CONFLICT (instance_id, status) DO NOTHING RETURNING instance_id`,
    [hostId],
  )
  return given + failed.length + ended.length
}

/** Moves instances to other hosts, which start them from scratch (store/directory/attempt.query). */
async function giveElsewhere(tx: NumberedTransaction, hostId: string): Promise<number> {
  const waiting = await tx.query<{ id: string; platform: string | null }>(
    `SELECT id, platform FROM instances
     WHERE host_id = $1 AND status = 'provisioning' AND desired = 'present' AND attempt < $2 ORDER BY created_at_ms, id`,
    [hostId, attemptsMax],
  )
  if (waiting.length === 0) return 0
  const hosts = otherHosts(await readHosts(tx), hostId)
  const counts = await tx.query<{ id: string; taken: number }>(
    `SELECT host_id AS id, count(*) AS taken FROM instances
     WHERE status IN ('provisioning', 'ready', 'terminating') GROUP BY host_id`,
  )
  const taken = new Map(counts.map(({ id, taken }) => [id, taken]))
  const given = waiting.flatMap(({ id, platform }) => {
    const placement = platform === null ? null : placementOf(hosts, { platform, taken })
    if (placement?.kind !== 'placed') return []
    taken.set(placement.hostId, (taken.get(placement.hostId) ?? 0) + 1)
    return [{ id, host: placement.hostId }]
  })
  if (given.length === 0) return 0
  await tx.query(
    `UPDATE instances i SET host_id = g.host, attempt = i.attempt + 1, egress_bytes = 0, egress_observed_at_ms = NULL,
       egress_block_applied_at_ms = NULL
     FROM jsonb_to_recordset($1::jsonb) AS g (id text, host text) WHERE i.id = g.id`,
    [JSON.stringify(given)],
  )
  return given.length
}

const lastSeen = lastSeenOf('$1')

/**
 * Fails the builds of a lost host, and returns their number. A queued build of a git repository continues, because no
 * host needs files from the lost one for it.
 */
export async function failBuildsOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  const rows = await tx.query(
    `UPDATE builds b SET state = 'failed', error_type = 'internal', error = $2,
       finished_at_ms = greatest(b.created_at_ms, ${lastSeen})
     WHERE host_id = $1 AND (state IN ('starting', 'running') OR (state = 'queued' AND source_kind <> 'git'))
     RETURNING id`,
    [hostId, buildLost],
  )
  return rows.length
}

/**
 * Ends the builds of a host that has left. All fail, because their files are gone and no daemon remains to end their
 * VMs.
 */
export async function endBuildsOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  const failed = await failBuildsOf(tx, hostId)
  const now = 'greatest(b.finished_at_ms, (extract(epoch FROM now()) * 1000)::bigint)'
  await tx.query(
    `UPDATE builds b SET closed_at_ms = coalesce(closed_at_ms, ${now}), removed_at_ms = coalesce(removed_at_ms, ${now}),
       disk_bytes = 0
     WHERE host_id = $1 AND state NOT IN ('queued', 'starting', 'running')`,
    [hostId],
  )
  await tx.query('DELETE FROM build_reservations WHERE host_id = $1', [hostId])
  return failed
}

/** Shown to clients. */
const buildLost = 'The host that had this build was lost; submit it again.'

/** Gives up everything of a host that was silent for too long. Returns the number of instances. */
export async function failAllOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  await failBuildsOf(tx, hostId)
  return await giveUpInstancesOf(tx, hostId)
}

/** Ends everything of a host that will not return. Returns the number of instances. */
export async function endAllOf(tx: NumberedTransaction, hostId: string): Promise<number> {
  await endBuildsOf(tx, hostId)
  return await giveUpInstancesOf(tx, hostId)
}

/** SQL: time of a host's last renewal in milliseconds; 0 if it never renewed. */
function lastSeenOf(host: string): string {
  return `(SELECT coalesce((extract(epoch FROM max(renewed_at)) * 1000)::bigint, 0) FROM leases WHERE host_id = ${host})`
}
