// CPU, memory and egress of running VMs over the last hour, in memory. Effects: reads the ledger, and usage through a
// function.

import type { ProcessUsage } from '../../host/process-usage.ts'
import type { LedgerDb } from '../../store/db.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import type { EgressSample } from '../../store/ledger/vm.table.ts'

/** Interval of points; samples of egress come more often. */
export const usageEveryMs = 30_000
/** Points of each VM, for one hour. No share: limits each VM. */
export const usagePointsMax = 120

export type UsagePoint = {
  readonly atMs: number
  /** CPUs in use on average since the previous point; null for the first point of a QEMU. */
  readonly cpus: number | null
  readonly memoryBytes: number | null
  /** Total since the VM's start. */
  readonly egressBytes: number
}

type Deps = {
  readonly db: LedgerDb
  readonly usage: (process: { readonly pid: number; readonly startTicks: number }) => ProcessUsage | null
}

type VmPoints = { readonly points: readonly UsagePoint[]; readonly process: string; readonly cpuMs: number | null }

export class UsageHistory {
  readonly #deps: Deps
  #byVm: ReadonlyMap<string, VmPoints> = new Map()

  constructor(deps: Deps) {
    this.#deps = deps
  }

  /** Adds a point for each VM whose last one is old enough. Forgets VMs that are not among the samples. */
  add(samples: readonly EgressSample[]): void {
    const processes = new Map(listResources(this.#deps.db, 'qemu').map(({ vmId, name }) => [vmId, name]))
    const next = samples.map(sample => {
      const before = this.#byVm.get(sample.vmId)
      const elapsedMs = sample.observedAtMs - (before?.points.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY)
      // A clock that was set back starts over, so that points stay in order.
      if (before !== undefined && elapsedMs >= 0 && elapsedMs < usageEveryMs) return [sample.vmId, before] as const
      const points = elapsedMs < 0 ? [] : (before?.points ?? [])
      const process = processes.get(sample.vmId) ?? ''
      const isSame = before !== undefined && before.process === process && points.length > 0
      return [sample.vmId, this.#withPoint(sample, { points, process, cpuMs: isSame ? before.cpuMs : null })] as const
    })
    this.#byVm = new Map(next)
  }

  /** Returns the points of a VM, oldest first; none if it does not run on this host. */
  of(vmId: string): readonly UsagePoint[] {
    return this.#byVm.get(vmId)?.points ?? []
  }

  #withPoint({ observedAtMs: atMs, usedBytes }: EgressSample, { points, process, cpuMs: before }: VmPoints): VmPoints {
    const [, pid, startTicks] = /^([0-9]+):([0-9]+)$/.exec(process) ?? []
    const found = pid === undefined ? null : this.#deps.usage({ pid: Number(pid), startTicks: Number(startTicks) })
    const cpuMs = found?.cpuMs ?? null
    const elapsedMs = atMs - (points.at(-1)?.atMs ?? atMs)
    const isKnown = cpuMs !== null && before !== null && elapsedMs > 0
    const point = {
      atMs,
      cpus: isKnown ? Math.max(0, cpuMs - before) / elapsedMs : null,
      memoryBytes: found?.memoryBytes ?? null,
      egressBytes: usedBytes,
    }
    return { points: [...points, point].slice(-usagePointsMax), process, cpuMs }
  }
}
