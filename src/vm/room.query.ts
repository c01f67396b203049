// Whether a VM that nobody has asked for yet would find room on a host now. Effects: SQL.

import type { LedgerDb } from '../store/db.ts'
import { restingAt } from '../store/ledger/address.query.ts'
import { endingOn, reservedBy, waitingOn } from '../store/ledger/vm.query.ts'
import { type Admission, admission, type Capacity } from './admission.plan.ts'

export type RoomWanted = {
  readonly hostId: string
  readonly vcpus: number
  readonly memoryMib: number
  readonly scratch: { readonly gib: number; readonly gibMax: () => number }
  readonly capacity: Capacity
  readonly addressRestMs: number
  readonly nowMs: number
}

/** As the engine would decide, but behind every VM that waits: `queue` while there is one, even where room is left. */
export function roomFor(db: LedgerDb, wanted: RoomWanted): Admission {
  const { hostId, capacity, addressRestMs: restMs, nowMs } = wanted
  const ahead = waitingOn(db, hostId)
  const occupancy = {
    reserved: reservedBy(db, hostId),
    ahead,
    ending: endingOn(db, hostId),
    restingAddresses: restingAt(db, { nowMs, restMs }).length,
    scratchGibMax: wanted.scratch.gibMax(),
  }
  const verdict = admission({ ...wanted, scratchGib: wanted.scratch.gib }, occupancy, capacity)
  return verdict.kind === 'admit' && ahead.vms > 0 ? { kind: 'queue' } : verdict
}
