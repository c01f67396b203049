// Counts for the operator's overview.

import { count } from 'drizzle-orm'
import type { Db } from './db.ts'
import { instances } from './directory/instance.table.ts'
import { vms } from './ledger/vm.table.ts'

/** Instances by status; a status without any is absent. */
export function countInstances(db: Db): Record<string, number> {
  const rows = db.select({ key: instances.status, count: count() }).from(instances).groupBy(instances.status).all()
  return Object.fromEntries(rows.map(row => [row.key, row.count]))
}

/** VMs by state; a state without any is absent. */
export function countVms(db: Db): Record<string, number> {
  const rows = db.select({ key: vms.state, count: count() }).from(vms).groupBy(vms.state).all()
  return Object.fromEntries(rows.map(row => [row.key, row.count]))
}
