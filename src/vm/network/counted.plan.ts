// Bytes that VMs have used, computed from the kernel's quotas and the ledger's samples. Pure.

import type { Quota } from '../../host/network/nft.ts'
import { type NftVm, quotaNames } from './nft.plan.ts'

export type WantedVm = NftVm & {
  readonly vmId: string
  /** Bytes that the tap received since the last sample, sent or dropped. */
  readonly unseenBytes: number
}

type WantedQuota = Quota & { readonly name: string }

export function quotasOf({ tap, ...vm }: NftVm): WantedQuota[] {
  const { cap, rescue, published } = quotaNames(tap)
  return [
    { name: cap, limitBytes: vm.limitBytes, usedBytes: vm.usedBytes },
    { name: rescue, limitBytes: vm.rescueLimitBytes, usedBytes: vm.rescueUsedBytes },
    ...(vm.published === undefined ? [] : [{ name: published, ...vm.published }]),
  ]
}

/**
 * Returns the bytes that a VM has used: the kernel's count or, if there is none, the ledger's plus everything that the
 * tap received since. An object that is in the kernel after all keeps its own count. Capped at the limit, because the
 * kernel accepts no quota that has used more.
 */
export function countedIn(found: ReadonlyMap<string, Quota>, vm: WantedVm): WantedVm {
  const { cap, rescue, published } = quotaNames(vm.tap)
  const kernel = found.get(cap)
  const usedBytes = kernel === undefined || hasLost(vm, kernel) ? vm.usedBytes + vm.unseenBytes : kernel.usedBytes
  return {
    ...vm,
    usedBytes: Math.min(vm.limitBytes, Math.max(vm.usedBytes, usedBytes)),
    rescueUsedBytes: Math.min(vm.rescueLimitBytes, Math.max(vm.rescueUsedBytes, found.get(rescue)?.usedBytes ?? 0)),
    ...(vm.published === undefined ? {} : { published: usedOf(vm.published, found.get(published)) }),
  }
}

function usedOf({ limitBytes, usedBytes }: Quota, found: Quota | undefined): Quota {
  return { limitBytes, usedBytes: Math.min(limitBytes, Math.max(usedBytes, found?.usedBytes ?? 0)) }
}

/**
 * Reports whether a new quota must replace the kernel's. A quota whose limit changes keeps its count. Once spent, that
 * count grows with every dropped packet, but nft shows at most the limit (nft_quota_do_dump in
 * net/netfilter/nft_quota.c). Under a higher limit the quota would still be spent, or would have counted dropped bytes.
 * While it is spent nothing leaves, so the shown count is exact.
 */
export function mustRenew(wanted: WantedQuota, found: Quota | undefined): boolean {
  if (found === undefined) return false
  const isSpent = found.usedBytes >= found.limitBytes
  return hasLost(wanted, found) || (isSpent && wanted.limitBytes > found.limitBytes)
}

/** Reports whether the kernel counted less than the ledger, because the quota was reset or replaced. */
export function hasLost(wanted: Pick<Quota, 'usedBytes'>, found: Quota): boolean {
  // A quota shows at most its limit.
  return found.usedBytes < Math.min(wanted.usedBytes, found.limitBytes)
}
