// Carries egress samples from the engine to the instances that they belong to. Effects: the store, sleeping.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { sweep } from '../base/work/sweep.ts'
import type { Store } from '../store/db.ts'
import { instancesByVms, setInstanceEgress } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { EgressSample } from '../store/ledger/vm.table.ts'

export type EgressDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Clock
  readonly log: Logger
  readonly intervalMs: number
  /**
   * Reads the kernel's counters into the ledger and returns the stored totals, which never shrink. Faults: host.*.
   */
  readonly sample: () => Promise<readonly EgressSample[]>
}

/** Samples at every interval until the signal. Never rejects. */
export async function runEgressSampler(deps: EgressDeps, signal: AbortSignal): Promise<void> {
  await sweep({ ...deps, signal }, async () => {
    try {
      await sampleEgress(deps)
    } catch (error) {
      deps.log.warn('egress was not sampled; the kernel enforces the cap all the same', { error })
    }
  })
}

/**
 * One round: copies samples into the directory in one transaction, then notes new blocks in this host's journal.
 * Faults: host.*.
 */
export async function sampleEgress({
  store,
  log,
  sample,
}: Pick<EgressDeps, 'store' | 'log' | 'sample'>): Promise<void> {
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
}

function isNewlyBlocked({ instance, sample }: { instance: Instance; sample: EgressSample }): boolean {
  return sample.blockedAtMs !== null && instance.egressBlockAppliedAtMs === null
}
