// VMs of one image that no row of their owner names. Effects: reads the ledger.

import type { LedgerDb } from '../../store/db.ts'
import { listVms } from '../../store/ledger/vm.query.ts'
import type { Vm } from '../../store/ledger/vm.table.ts'

/** Returns VMs left by a daemon that was killed between row and VM, or by records that are lost. */
export function unnamedVms(
  db: LedgerDb,
  { hostId, image, named }: { hostId: string; image: string; named: ReadonlySet<string> },
): Vm[] {
  return listVms(db, hostId).filter(vm => vm.image === image && vm.desired !== 'gone' && !named.has(vm.id))
}
