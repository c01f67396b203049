// What is left of a host: for the VM whose turn it is, and for one that nobody has asked for yet. Effects: SQL.

import type { LedgerDb } from '../store/db.ts'
import { restingAt } from '../store/ledger/address.query.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { endingOn, type Room, reservedBy, waitingBefore, waitingOn } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { type Admission, admission, type Capacity, type Request } from './admission.plan.ts'
import { freeAddress } from './launch.plan.ts'

/** A host, and what VMs may have of it. */
export type Host = {
  readonly hostId: string
  readonly capacity: Capacity
  /** What the disks of all VMs may hold together, as the file system is now. */
  readonly diskGibMax: () => number
  readonly addressRestMs: number
}

/** A place on the host with an address of the pool; or why there is none now. */
export type Place =
  | { readonly kind: 'place'; readonly address: string }
  | Exclude<Admission, { readonly kind: 'admit' }>

/** For a VM whose row waits, behind those that have waited for longer. In the transaction that takes the place. */
export function placeFor(tx: LedgerDb, vm: Vm, host: Host & { readonly pool: string; readonly nowMs: number }): Place {
  const { vcpus, memoryMib } = vm
  const wanted = { vcpus, memoryMib, diskGib: vm.scratchGib + vm.exchangeGib }
  const { verdict, resting } = judge(tx, wanted, { ...host, ahead: waitingBefore(tx, vm) })
  if (verdict.kind !== 'admit') return verdict
  const held = listResources(tx, 'address').map(row => row.name)
  const address = freeAddress(host.pool, new Set([...held, ...resting]))
  // Addresses of an earlier pool, or those that failed VMs have not given back yet.
  return address === null ? { kind: 'full', lacking: 'addresses', isEnding: false } : { kind: 'place', address }
}

/** Behind every VM that waits: `queue` while there is one, even where room is left. */
export function roomFor(db: LedgerDb, wanted: Request, host: Host & { readonly nowMs: number }): Admission {
  const ahead = waitingOn(db, host.hostId)
  const { verdict } = judge(db, wanted, { ...host, ahead })
  return verdict.kind === 'admit' && ahead.vms > 0 ? { kind: 'queue' } : verdict
}

type Judged = { readonly verdict: Admission; readonly resting: readonly string[] }

function judge(
  db: LedgerDb,
  wanted: Request,
  { hostId, capacity, diskGibMax, addressRestMs: restMs, nowMs, ahead }: Host & { nowMs: number; ahead: Room },
): Judged {
  const resting = restingAt(db, { nowMs, restMs })
  const occupancy = {
    reserved: reservedBy(db, hostId),
    ahead,
    ending: endingOn(db, hostId),
    restingAddresses: resting.length,
    diskGibMax: diskGibMax(),
  }
  return { verdict: admission(wanted, occupancy, capacity), resting }
}
