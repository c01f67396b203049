// Reports this host's changes to the directory in numbered batches. Each is applied once, in the transaction that
// stores its number. Effects: statements to PostgreSQL, SQL on the host's database.

import type { Postgres } from '../postgres.ts'
import type { Batch, Outbox } from '../replica/outbox.ts'
import type { Writing } from './statements.ts'
import { writesOf } from './write.ts'

export type ReportsDeps = {
  readonly postgres: Pick<Postgres, 'transact'>
  readonly outbox: Outbox
  readonly hostId: string
  readonly writing: Writing
}

/** Tables whose changes wake other hosts. They find other changes at their next poll. */
const NEWSWORTHY: ReadonlySet<string> = new Set([
  ...['instance_changes', 'instance_addresses', 'builds', 'build_reservations'],
])

const noteBatch =
  'INSERT INTO outboxes VALUES ($1, $2::bigint) ON CONFLICT (host_id) DO UPDATE SET batch = excluded.batch'

/** Reports all pending changes. Faults: `fleet.unavailable`, `store.*`. */
export async function reportAll(deps: ReportsDeps, signal: AbortSignal): Promise<void> {
  for (let batch = deps.outbox.next(); batch !== null && !signal.aborted; batch = deps.outbox.next()) {
    await report(deps, batch)
  }
}

async function report({ postgres, outbox, hostId, writing }: ReportsDeps, batch: Batch): Promise<void> {
  const isQuiet = !batch.changes.some(({ table }) => NEWSWORTHY.has(table))
  const taken = await postgres.transact(
    async tx => {
      const known = tx.opened[0]?.batch
      if (typeof known === 'number' && known >= batch.number) return known
      for (const statement of writesOf(batch.changes, { writing, hostId })) tx.atCommit(statement)
      tx.atCommit({ text: noteBatch, values: [hostId, String(batch.number)] })
      return batch.number
    },
    { isQuiet, opening: () => ({ text: 'SELECT batch FROM outboxes WHERE host_id = $1', values: [hostId] }) },
  )
  if (taken === batch.number) outbox.taken(batch)
  else outbox.renumber(taken)
}
