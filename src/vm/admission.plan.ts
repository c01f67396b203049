// Whether a new VM fits. Pure. Counts memory, vCPUs, addresses and, on snp, ASIDs; and how many may boot at the same time.

import type { Reserved } from '../store/ledger/vm.query.ts'

export type Capacity = {
  readonly memoryMib: number
  readonly vcpus: number
  readonly addresses: number
  /** SEV-SNP address space ids, one per VM; null where the platform needs none. */
  readonly asids: number | null
  readonly bootingMax: number
}

export type Admission =
  | { readonly kind: 'admit' }
  /** It fits, but as many as may boot at a time are booting: it waits for its turn. */
  | { readonly kind: 'queue' }
  | { readonly kind: 'full'; readonly lacking: 'memory' | 'vcpus' | 'addresses' | 'asids' }

export function admission(
  request: { readonly vcpus: number; readonly memoryMib: number },
  reserved: Reserved,
  capacity: Capacity,
): Admission {
  if (reserved.memoryMib + request.memoryMib > capacity.memoryMib) return { kind: 'full', lacking: 'memory' }
  if (reserved.vcpus + request.vcpus > capacity.vcpus) return { kind: 'full', lacking: 'vcpus' }
  if (reserved.vms + 1 > capacity.addresses) return { kind: 'full', lacking: 'addresses' }
  if (capacity.asids !== null && reserved.vms + 1 > capacity.asids) return { kind: 'full', lacking: 'asids' }
  return reserved.booting >= capacity.bootingMax ? { kind: 'queue' } : { kind: 'admit' }
}
