// What is left of a host: for the VM whose turn it is, and for one that nobody has asked for yet. Effects: SQL.

import type { LedgerDb } from '../store/db.ts'
import { restingAt } from '../store/ledger/address.query.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { endingOn, type Room, reservedBy, waitingBefore, waitingOn } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { type Admission, admission, type Capacity, type Request } from './admission.plan.ts'
import { freeAddress, freeAddressV6 } from './launch.plan.ts'

/** A host, and what VMs may have of it. */
export type Host = {
  readonly hostId: string
  readonly capacity: Capacity
  /** What the disks of all VMs may hold together, as the file system is now. */
  readonly diskGibMax: () => number
  readonly addressRestMs: number
}

/** Networks that VMs get their addresses from; null: none of this family. */
export type Pools = { readonly v4: string | null; readonly v6: string | null }

/** Of a VM; at least one is there. */
export type VmAddresses = Pick<Vm, 'address' | 'addressV6'>

/** A place on the host with an address of each pool; or why there is none now. */
export type Place = ({ readonly kind: 'place' } & VmAddresses) | Exclude<Admission, { readonly kind: 'admit' }>

/**
 * For a VM whose row waits, behind those that have waited for longer. In the transaction that takes the place. VMs that fetch, and the gateway's,
 * have IPv4 alone.
 */
export function placeFor(tx: LedgerDb, vm: Vm, host: Host & { readonly pools: Pools; readonly nowMs: number }): Place {
  const { vcpus, memoryMib } = vm
  const wanted = { vcpus, memoryMib, diskGib: vm.scratchGib + vm.exchangeGib }
  const { verdict, resting } = judge(tx, wanted, { ...host, ahead: waitingBefore(tx, vm) })
  if (verdict.kind !== 'admit') return verdict
  const taken = (kind: 'address' | 'address_v6') =>
    new Set([...listResources(tx, kind).map(row => row.name), ...resting])
  const { v4, v6 } = { v4: host.pools.v4, v6: vm.network === 'world' ? host.pools.v6 : null }
  const address = v4 === null ? null : freeAddress(v4, taken('address'))
  const addressV6 = v6 === null ? null : freeAddressV6(v6, taken('address_v6'))
  const lacks = (v4 !== null && address === null) || (v6 !== null && addressV6 === null) || (v4 ?? v6) === null
  // Addresses of an earlier pool, or those that failed VMs have not given back yet.
  return lacks ? { kind: 'full', lacking: 'addresses', isEnding: false } : { kind: 'place', address, addressV6 }
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
    // A VM gives back one of each family at most.
    restingAddresses: Math.max(...[true, false].map(is => resting.filter(text => text.includes(':') === is).length)),
    diskGibMax: diskGibMax(),
  }
  return { verdict: admission(wanted, occupancy, capacity), resting }
}
