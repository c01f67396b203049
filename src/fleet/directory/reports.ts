// Reports this host's changes to the directory in numbered batches. Each is applied once, in the transaction that
// stores its number. Effects: statements to PostgreSQL, SQL on the host's database.

import type { Postgres } from '../postgres.ts'
import type { Batch, Outbox } from '../replica/outbox.ts'
import { REPLICA_TABLE_BY_NAME, type RowChange } from '../replica/tables.ts'
import { announce } from './feed.ts'
import type { Writing } from './statements.ts'
import { writesOf } from './write.ts'

export type ReportsDeps = {
  readonly postgres: Pick<Postgres, 'transact' | 'transactPlain'>
  readonly outbox: Outbox
  readonly hostId: string
  readonly writing: Writing
  /** Whether the directory's schema has sums apart from the changes. */
  readonly hasSums: () => boolean
}

/** Tables whose changes wake other hosts. They find other changes at their next poll. */
const NEWSWORTHY: ReadonlySet<string> = new Set([
  ...['instance_changes', 'instance_addresses', 'builds', 'build_reservations'],
])

const newestBatch = 'SELECT batch FROM outboxes WHERE host_id = $1'
const noteBatch =
  'INSERT INTO outboxes VALUES ($1, $2::bigint) ON CONFLICT (host_id) DO UPDATE SET batch = excluded.batch'

/** Least and greatest time between two reports. */
const [restMinMs, restMaxMs] = [50, 1_000]
/** Rest for each millisecond of a report. */
const restShare = 20

/**
 * Returns the time until the next report. VMs that boot together change one after the other, and each report is a
 * commit that all changes wait for and that wakes all hosts. The time of a report is mostly the wait for the
 * directory's counter, so the more hosts report, the longer each rests, and the counter stays free for creates.
 */
export function restAfterReport(tookMs: number): number {
  return Math.min(restMaxMs, Math.max(restMinMs, tookMs * restShare))
}

/** Reports all pending changes. Faults: `fleet.unavailable`, `store.*`. */
export async function reportAll(deps: ReportsDeps, signal: AbortSignal): Promise<void> {
  for (let batch = deps.outbox.next(); batch !== null && !signal.aborted; batch = deps.outbox.next()) {
    await report(deps, batch)
  }
}

async function report(deps: ReportsDeps, batch: Batch): Promise<void> {
  const { outbox } = deps
  const taken =
    deps.hasSums() && batch.changes.every(isReportedSum) ? await sendSums(deps, batch) : await send(deps, batch)
  if (taken === batch.number) outbox.taken(batch)
  else outbox.renumber(taken)
}

/** A removed sum is a change, which other hosts copy. */
function isReportedSum({ table, row }: RowChange): boolean {
  return row !== null && REPLICA_TABLE_BY_NAME.get(table)?.isSum === true
}

/** Returns the directory's newest batch of this host. */
async function send({ postgres, outbox, hostId, writing }: ReportsDeps, batch: Batch): Promise<number> {
  const isAnnounced = batch.changes.some(({ table }) => NEWSWORTHY.has(table))
  return await postgres.transact(
    async tx => {
      const known = tx.opened[0]?.batch
      outbox.directoryHas(typeof known === 'number' ? known : 0)
      if (typeof known === 'number' && known >= batch.number) return known
      for (const statement of writesOf(batch.changes, { writing, hostId })) tx.atCommit(statement)
      tx.atCommit({ text: noteBatch, values: [hostId, String(batch.number)] })
      if (isAnnounced) tx.atCommit(announce(tx.version, batch.changes))
      return batch.number
    },
    { isQuiet: true, opening: () => ({ text: newestBatch, values: [hostId] }) },
  )
}

/** Does the same as `send` without waiting for the directory's counter. */
async function sendSums({ postgres, outbox, hostId, writing }: ReportsDeps, batch: Batch): Promise<number> {
  return await postgres.transactPlain(async tx => {
    const [known] = await tx.query<{ batch: number }>(newestBatch, [hostId])
    outbox.directoryHas(known?.batch ?? 0)
    if (known !== undefined && known.batch >= batch.number) return known.batch
    for (const { text, values } of writesOf(batch.changes, { writing, hostId })) await tx.query(text, values)
    await tx.query(noteBatch, [hostId, batch.number])
    return batch.number
  })
}
