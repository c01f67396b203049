// Carries what this host did to the directory, in numbered batches: each is taken once, in the transaction that notes
// its number. Effects: statements to PostgreSQL, SQL on the host's database.

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

/** Other hosts are woken for these; the rest they find at their next poll. */
const NEWSWORTHY: ReadonlySet<string> = new Set([
  ...['instance_changes', 'instance_addresses', 'builds', 'build_reservations'],
])

const noteBatch =
  'INSERT INTO outboxes VALUES ($1, $2::bigint) ON CONFLICT (host_id) DO UPDATE SET batch = excluded.batch'

/** Reports everything that there is to report now. Faults: `fleet.unavailable`, `store.*`. */
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
