// Transfers egress samples from the engine to their instances, and the counts into their VMs. Effects: the store, the
// VMs, sleeping.

import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { sweep } from '../base/work/sweep.ts'
import { egressLimitBytes } from '../contract/http/instance.ts'
import type { EgressCount } from '../contract/vm/agent.ts'
import type { Store } from '../store/db.ts'
import { instancesByVms, setInstanceEgress } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import { vmsById } from '../store/ledger/vm.query.ts'
import type { EgressSample } from '../store/ledger/vm.table.ts'
import type { VmEngine } from '../vm/engine.ts'

export type EgressDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Clock
  readonly log: Logger
  readonly intervalMs: number
  /**
   * Reads the kernel's counters into the ledger and returns the stored totals, which never decrease. Faults: host.*.
   */
  readonly sample: () => Promise<readonly EgressSample[]>
  /** Sends a VM the count of its egress. Faults: channel.*. */
  readonly handEgress: VmEngine['handEgress']
}

/** Time for a busy guest to accept a count. */
const handTimeoutMs = 60_000

/** Samples at every interval until the signal is aborted. Never rejects. */
export async function runEgressSampler(deps: EgressDeps, signal: AbortSignal): Promise<void> {
  const counts = new EgressCounts(deps)
  await sweep({ ...deps, signal }, async () => {
    try {
      counts.hand(await sampleEgress(deps))
    } catch (error) {
      deps.log.warn('egress was not sampled; the kernel enforces the cap all the same', { error })
    }
  })
}

/**
 * Samples once: copies samples into the directory in one transaction, then records new blocks in this host's journal.
 * Returns the samples of instances. Faults: host.*.
 */
export async function sampleEgress({
  store,
  log,
  sample,
}: Pick<EgressDeps, 'store' | 'log' | 'sample'>): Promise<readonly EgressSample[]> {
  const byVm = new Map((await sample()).map(sample => [sample.vmId, sample]))
  const pairs = store.directory.transact(tx => {
    const found = [...instancesByVms(tx, [...byVm.keys()])].flatMap(([vmId, instance]) => {
      const sample = byVm.get(vmId)
      return sample === undefined ? [] : [{ instance, sample }]
    })
    setInstanceEgress(
      tx,
      found.map(({ instance, sample }) => ({
        id: instance.id,
        egressBytes: sample.usedBytes,
        egressObservedAtMs: sample.observedAtMs,
        egressBlockAppliedAtMs: sample.blockedAtMs,
      })),
    )
    return found
  })
  for (const { instance, sample } of pairs.filter(isNewlyBlocked)) {
    const detail = { usedBytes: sample.usedBytes }
    log.warn('an instance has spent its egress and is blocked', { instance: instance.id, ...detail })
    noteEvent(store.ledger.db, log, {
      nowMs: sample.observedAtMs,
      kind: 'instance.egress_blocked',
      subject: instance.id,
      detail,
    })
  }
  return pairs.map(({ sample }) => sample)
}

/** Sends counts to the VMs: one for each whole percent of a limit, and one after a start of this daemon. */
class EgressCounts {
  readonly #deps: Pick<EgressDeps, 'store' | 'log' | 'handEgress'>
  /** Percent and limit of the last count of each VM. */
  #handed = new Map<string, string>()
  /** VMs that have not answered their last count. */
  readonly #waiting = new Set<string>()

  constructor(deps: Pick<EgressDeps, 'store' | 'log' | 'handEgress'>) {
    this.#deps = deps
  }

  /** Sends the counts that are due, without waiting for the VMs. */
  hand(samples: readonly EgressSample[]): void {
    const ids = samples.map(({ vmId }) => vmId)
    const vms = vmsById(this.#deps.store.ledger.db, ids)
    const before = this.#handed
    this.#handed = new Map()
    for (const { vmId, usedBytes } of samples) {
      const limitBytes = vms.get(vmId)?.egressLimitBytes ?? egressLimitBytes
      const step = `${Math.floor((usedBytes * 100) / limitBytes)} % of ${limitBytes}`
      const last = before.get(vmId)
      // A hung VM has one open count, which leaves room for the requests that find out that it hangs.
      if (last !== undefined && this.#waiting.has(vmId)) this.#handed.set(vmId, last)
      else this.#handed.set(vmId, step)
      if (last !== step && !this.#waiting.has(vmId)) void this.#hand(vmId, { usedBytes, limitBytes }, step)
    }
  }

  async #hand(vmId: string, count: EgressCount, step: string): Promise<void> {
    const { log, handEgress } = this.#deps
    this.#waiting.add(vmId)
    try {
      await handEgress(vmId, count, handTimeoutMs)
    } catch (error) {
      // A VM of an earlier release refuses counts. A VM that is not attached gets this one with the next sample.
      if (error instanceof Fault && error.code === 'channel.closed' && this.#handed.get(vmId) === step)
        this.#handed.delete(vmId)
      log.debug('a VM did not take the count of its egress', { vm: vmId, error })
    } finally {
      this.#waiting.delete(vmId)
    }
  }
}

function isNewlyBlocked({ instance, sample }: { instance: Instance; sample: EgressSample }): boolean {
  return sample.blockedAtMs !== null && instance.egressBlockAppliedAtMs === null
}
