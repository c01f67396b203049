// Short texts that change with the ledger, for the console. Effects: reads SQL, a few milliseconds.

import { type LedgerDb, prepareRaw } from '../db.ts'

export type LedgerMarks = {
  /** Commands of operators. */
  readonly commands: string
  readonly vms: string
  readonly gatewayVms: string
}

export function ledgerMarks(db: LedgerDb): () => LedgerMarks {
  const asked = prepareRaw<Record<keyof LedgerMarks, string>>(
    db,
    `SELECT
      (SELECT coalesce(max(seq), 0) || ' ' || count(*) FROM audit WHERE result IS NULL)
        || (SELECT ' ' || coalesce(max(seq), 0) FROM audit) AS commands,
      (SELECT count(*) || ' ' || total(changed_at_ms) FROM vms) AS vms,
      (SELECT count(*) || ' ' || group_concat(state) FROM gateways) AS gatewayVms`,
  )
  return () => asked.get() ?? { commands: '', vms: '', gatewayVms: '' }
}

/** Differs after every write to the database: by this connection, or by another one. */
export function writeMark(db: LedgerDb): () => string {
  const own = prepareRaw<{ count: number }>(db, 'SELECT total_changes() AS count')
  const others = prepareRaw<{ data_version: number }>(db, 'PRAGMA data_version')
  return () => `${own.get()?.count ?? 0} ${others.get()?.data_version ?? 0}`
}
