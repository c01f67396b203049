// Resources left on a host, for the next waiting VM and for one that is not defined yet. Effects: SQL.

import type { LedgerDb } from '../store/db.ts'
import { restingAt } from '../store/ledger/address.query.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { endingOn, type Resources, reservedBy, waitingBefore, waitingOn } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import {
  type Admission,
  admission,
  type Capacity,
  type Occupancy,
  type Request,
  type Room,
  roomFor,
} from './admission.plan.ts'
import { freeAddress, freeAddressV6 } from './launch.plan.ts'

/** A host, and the part of it that VMs may use. */
export type Host = {
  readonly hostId: string
  readonly capacity: Capacity
  /** Returns the GiB for the disks of all VMs, from the file system's current state. */
  readonly diskGibMax: () => number
  readonly addressRestMs: number
}

/** Networks of VMs' addresses. Null if VMs have none of this family. */
export type Pools = { readonly v4: string | null; readonly v6: string | null }

/** Addresses of a VM, at least one. */
export type VmAddresses = Pick<Vm, 'address' | 'addressV6'>

/** A slot on the host with an address of each pool, or why there is none now. */
export type AddressSlot = ({ readonly kind: 'place' } & VmAddresses) | Exclude<Admission, { readonly kind: 'admit' }>

/**
 * Returns the slot for a VM in state `waiting`, after those that have waited longer. Runs in the transaction that takes
 * the slot. VMs of networks `fetch` and `gateway` have only IPv4.
 */
export function placeFor(
  tx: LedgerDb,
  vm: Vm,
  host: Host & { readonly pools: Pools; readonly nowMs: number },
): AddressSlot {
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
  // Addresses of an earlier pool are held, or those of failed VMs are not released yet.
  return lacks ? { kind: 'full', lacking: 'addresses', isEnding: false } : { kind: 'place', address, addressV6 }
}

/** Judges a VM that would queue behind every waiting VM: `queue` while one waits, even if there is room. */
export function admissionFor(db: LedgerDb, wanted: Request, host: Host & { readonly nowMs: number }): Admission {
  const ahead = waitingOn(db, host.hostId)
  const { verdict } = judge(db, wanted, { ...host, ahead })
  return verdict.kind === 'admit' && ahead.vms > 0 ? { kind: 'queue' } : verdict
}

/** Returns how many further VMs of this kind fit behind every waiting VM. */
export function roomOn(db: LedgerDb, wanted: Request, host: Host & { readonly nowMs: number }): Room {
  const { occupancy } = occupancyOf(db, { ...host, ahead: waitingOn(db, host.hostId) })
  return roomFor(wanted, occupancy, host.capacity)
}

type CapacityVerdict = { readonly verdict: Admission; readonly resting: readonly string[] }
type Situation = Host & { readonly nowMs: number; readonly ahead: Resources }

function judge(db: LedgerDb, wanted: Request, situation: Situation): CapacityVerdict {
  const { occupancy, resting } = occupancyOf(db, situation)
  return { verdict: admission(wanted, occupancy, situation.capacity), resting }
}

function occupancyOf(
  db: LedgerDb,
  { hostId, diskGibMax, addressRestMs: restMs, nowMs, ahead }: Situation,
): { readonly occupancy: Occupancy; readonly resting: readonly string[] } {
  const resting = restingAt(db, { nowMs, restMs })
  const occupancy = {
    reserved: reservedBy(db, hostId),
    ahead,
    ending: endingOn(db, hostId),
    // A VM releases at most one address of each family.
    restingAddresses: Math.max(...[true, false].map(is => resting.filter(text => text.includes(':') === is).length)),
    diskGibMax: diskGibMax(),
  }
  return { occupancy, resting }
}
