// Checks whether a new VM fits: memory, vCPUs, disk room, addresses, ASIDs on snp, and VMs that boot at a time. Pure.

import type { Reserved, Resources } from '../store/ledger/vm.query.ts'

export type Capacity = {
  readonly memoryMib: number
  readonly vcpus: number
  readonly addresses: number
  /** SEV-SNP address space ids, one per VM. Null if the platform needs none. */
  readonly asids: number | null
  readonly bootingMax: number
}

/** Resources of the host in use. */
export type Occupancy = {
  readonly reserved: Reserved
  /**
   * Resources for VMs that have waited longer. A VM that cannot fit is refused at once, not when it is first in the
   * queue.
   */
  readonly ahead: Resources
  /** The part of `reserved` that is being released. */
  readonly ending: Resources
  /** Released addresses that may not be reused yet. */
  readonly restingAddresses: number
  /** GiB for the disks of all VMs, from the file system's present state. */
  readonly diskGibMax: number
}

export type Lacking = 'memory' | 'vcpus' | 'disk' | 'addresses' | 'asids'

export type Admission =
  | { readonly kind: 'admit' }
  /** The VM fits, but the maximum number of VMs is booting. */
  | { readonly kind: 'queue' }
  /** `isEnding`: whether there will be room once the ending VMs have ended. */
  | { readonly kind: 'full'; readonly lacking: Lacking; readonly isEnding: boolean }

export type Request = { readonly vcpus: number; readonly memoryMib: number; readonly diskGib: number }

export function admission(request: Request, occupancy: Occupancy, capacity: Capacity): Admission {
  const { reserved, ahead, ending } = occupancy
  const taken = plus(reserved, ahead, 1)
  const lacking = lackingOf(request, taken, occupancy, capacity)
  if (lacking !== null) {
    const afterwards = plus(taken, ending, -1)
    // A released address rests first.
    const later = { ...occupancy, restingAddresses: occupancy.restingAddresses + ending.vms }
    return { kind: 'full', lacking, isEnding: lackingOf(request, afterwards, later, capacity) === null }
  }
  return reserved.booting >= capacity.bootingMax ? { kind: 'queue' } : { kind: 'admit' }
}

/** Number of further VMs of this kind that fit, and what prevents one more. `ahead` is reserved for waiting VMs. */
export type Room = { readonly count: number; readonly lacking: Lacking }

export function roomFor(request: Request, occupancy: Occupancy, capacity: Capacity): Room {
  const { reserved, ahead, restingAddresses, diskGibMax } = occupancy
  const taken = plus(reserved, ahead, 1)
  const limits: readonly (readonly [Lacking, number])[] = [
    ['memory', (capacity.memoryMib - taken.memoryMib) / request.memoryMib],
    ['vcpus', (capacity.vcpus - taken.vcpus) / request.vcpus],
    ['disk', request.diskGib > 0 ? (diskGibMax - taken.diskGib) / request.diskGib : Number.POSITIVE_INFINITY],
    ['addresses', capacity.addresses - taken.vms - restingAddresses],
    ['asids', capacity.asids === null ? Number.POSITIVE_INFINITY : capacity.asids - taken.vms],
  ]
  const [lacking, count] = limits.reduce((least, limit) => (limit[1] < least[1] ? limit : least))
  return { count: Math.max(0, Math.floor(count)), lacking }
}

function plus(room: Resources, other: Resources, sign: 1 | -1): Resources {
  return {
    vms: room.vms + sign * other.vms,
    vcpus: room.vcpus + sign * other.vcpus,
    memoryMib: room.memoryMib + sign * other.memoryMib,
    diskGib: room.diskGib + sign * other.diskGib,
  }
}

function lackingOf(
  request: Request,
  taken: Resources,
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
