// Whether a new VM fits. Pure. Counts memory, vCPUs, room for disks, addresses and, on snp, ASIDs; and how many may boot at the same time.

import type { Reserved, Room } from '../store/ledger/vm.query.ts'

export type Capacity = {
  readonly memoryMib: number
  readonly vcpus: number
  readonly addresses: number
  /** SEV-SNP address space ids, one per VM; null where the platform needs none. */
  readonly asids: number | null
  readonly bootingMax: number
}

/** How the host's room is taken. */
export type Occupancy = {
  readonly reserved: Reserved
  /** What those will take that have waited for longer: who cannot have a place learns so at once, not when the last turn has passed. */
  readonly ahead: Room
  /** The part of `reserved` that is being given back. */
  readonly ending: Room
  /** Addresses that no VM holds, but that nobody gets yet. */
  readonly restingAddresses: number
  /** What the disks of all VMs may hold together, as the file system is now. */
  readonly diskGibMax: number
}

export type Lacking = 'memory' | 'vcpus' | 'disk' | 'addresses' | 'asids'

export type Admission =
  | { readonly kind: 'admit' }
  /** It fits, but as many as may boot at a time are booting: it waits for its turn. */
  | { readonly kind: 'queue' }
  /** `isEnding`: there will be room as soon as what is ending has ended. */
  | { readonly kind: 'full'; readonly lacking: Lacking; readonly isEnding: boolean }

export type Request = { readonly vcpus: number; readonly memoryMib: number; readonly diskGib: number }

export function admission(request: Request, occupancy: Occupancy, capacity: Capacity): Admission {
  const { reserved, ahead, ending } = occupancy
  const taken = plus(reserved, ahead, 1)
  const lacking = lackingOf(request, taken, occupancy, capacity)
  if (lacking !== null) {
    const afterwards = plus(taken, ending, -1)
    // An address that is given back rests first.
    const later = { ...occupancy, restingAddresses: occupancy.restingAddresses + ending.vms }
    return { kind: 'full', lacking, isEnding: lackingOf(request, afterwards, later, capacity) === null }
  }
  return reserved.booting >= capacity.bootingMax ? { kind: 'queue' } : { kind: 'admit' }
}

function plus(room: Room, other: Room, sign: 1 | -1): Room {
  return {
    vms: room.vms + sign * other.vms,
    vcpus: room.vcpus + sign * other.vcpus,
    memoryMib: room.memoryMib + sign * other.memoryMib,
    diskGib: room.diskGib + sign * other.diskGib,
  }
}

function lackingOf(
  request: Request,
  taken: Room,
  { restingAddresses, diskGibMax }: Pick<Occupancy, 'restingAddresses' | 'diskGibMax'>,
  capacity: Capacity,
): Lacking | null {
  if (taken.memoryMib + request.memoryMib > capacity.memoryMib) return 'memory'
  if (taken.vcpus + request.vcpus > capacity.vcpus) return 'vcpus'
  if (request.diskGib > 0 && taken.diskGib + request.diskGib > diskGibMax) return 'disk'
  if (taken.vms + restingAddresses + 1 > capacity.addresses) return 'addresses'
  if (capacity.asids !== null && taken.vms + 1 > capacity.asids) return 'asids'
  return null
}
