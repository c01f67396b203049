// The host's side of guest networking: one writer of the owned nftables table, and the egress sampler. Effects: nft, database.
//
// The kernel enforces the cap by itself; sampling serves reports, and restores the table when someone has flushed it.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { Nft, Quota } from '../host/network/nft.ts'
import type { Db } from '../store/db.ts'
import { type EgressSample, listEgress, recordEgress } from '../store/ledger/egress.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import { macAddress } from './launch.plan.ts'
import { type NftVm, rulesetText } from './nft.plan.ts'

export type NetworkDeps = {
  readonly db: Db
  readonly nft: Nft
  readonly clock: Clock
  readonly log: Logger
  readonly table: string
  readonly gateway: string
  readonly gatewayPorts: readonly number[]
  readonly egressLimitBytes: number
}

export type VmNetwork = {
  /** Makes the kernel's table agree with the ledger. Calls that come meanwhile share the next run. Faults: host.*. */
  readonly sync: () => Promise<void>
  /** Takes a VM's objects out of the kernel; the caller strikes the ledger row afterwards. */
  readonly remove: (tap: string) => Promise<void>
  /** Reads all quotas, stores them, and puts back what is missing. Returns the VMs whose sample was stored. */
  readonly sample: () => Promise<readonly EgressSample[]>
}

const nftTimeoutMs = 30_000

export function createNetwork(deps: NetworkDeps): VmNetwork {
  const excluded = new Set<string>()
  /** Taps whose objects are in the kernel; null until first read. */
  let installed: ReadonlySet<string> | null = null
  let queued: Promise<void> | null = null
  let last: Promise<void> = Promise.resolve()

  const wanted = (): (NftVm & { vmId: string })[] => {
    const usedBytes = new Map(listEgress(deps.db).map(row => [row.vmId, row.usedBytes]))
    return listResources(deps.db, 'nft').flatMap(({ name: tap, vmId }) => {
      const address = vmById(deps.db, vmId)?.address
      if (excluded.has(tap) || !address) return []
      const limitBytes = deps.egressLimitBytes
      return [{ vmId, tap, address, mac: macAddress(vmId), limitBytes, usedBytes: usedBytes.get(vmId) ?? 0 }]
    })
  }

  const apply = async () => {
    const present = installed ?? new Set((await deps.nft.readCounters(nftTimeoutMs))?.quotas.keys())
    const vms = wanted()
    const names = new Set(vms.map(vm => vm.tap))
    const removed = [...present].filter(tap => !names.has(tap))
    const { table, gateway, gatewayPorts } = deps
    // Until nft has answered we do not know what the kernel holds: read again after a failure.
    installed = null
    await deps.nft.applyRuleset(rulesetText({ table, gateway, gatewayPorts, vms, removed }), nftTimeoutMs)
    installed = names
  }

  const sync = (): Promise<void> => {
    queued ??= last.then(() => {
      queued = null
      last = apply()
      const settled = last
      last = settled.catch(() => {})
      return settled
    })
    return queued
  }

  return {
    sync,
    remove: async tap => {
      excluded.add(tap)
      try {
        await sync()
      } finally {
        excluded.delete(tap)
      }
    },
    sample: async () => {
      const vms = wanted()
      if (vms.length === 0) return []
      const quotas = (await deps.nft.readCounters(nftTimeoutMs))?.quotas ?? new Map<string, Quota>()
      const observedAtMs = deps.clock.nowMs()
      const samples = vms.flatMap(vm => {
        const quota = quotas.get(vm.tap)
        if (quota === undefined) return []
        const blocked = quota.usedBytes >= deps.egressLimitBytes
        return [{ vmId: vm.vmId, usedBytes: quota.usedBytes, observedAtMs, blocked }]
      })
      recordEgress(deps.db, samples)
      if (
        samples.length < vms.length &&
        installed !== null &&
        vms.some(vm => installed?.has(vm.tap) && !quotas.has(vm.tap))
      ) {
        deps.log.error('nftables objects have vanished; restoring them with what was counted', { table: deps.table })
        appendEvent(deps.db, { nowMs: observedAtMs, kind: 'nft.restored', subject: '', detail: { table: deps.table } })
        installed = null
        await sync()
      }
      return samples
    },
  }
}
