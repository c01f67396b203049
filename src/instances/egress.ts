// Carries egress samples from the engine to the instances they belong to. Effects: the store, sleeping.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { Store } from '../store/db.ts'
import { instancesByVm, setEgress } from '../store/directory/instance.query.ts'
import { type EgressSample, egressOf } from '../store/ledger/egress.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'

export type EgressDeps = {
  readonly store: Pick<Store, 'db' | 'transact'>
  readonly clock: Clock
  readonly log: Logger
  readonly intervalMs: number
  /** Reads the kernel's counters. Faults: host.*. */
  readonly sample: () => Promise<readonly EgressSample[]>
}

/** Samples at every interval until the signal. Never rejects. */
export async function runEgressSampler(deps: EgressDeps, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      publish(deps, await deps.sample())
    } catch (error) {
      deps.log.warn('egress was not sampled; the kernel enforces the cap all the same', { error })
    }
    await deps.clock.sleep(deps.intervalMs, signal).catch(() => {})
  }
}

function publish({ store, log }: EgressDeps, samples: readonly EgressSample[]): void {
  store.transact(tx => {
    for (const { vmId, observedAtMs } of samples) {
      // What is stored, not what was read: a stored total never shrinks.
      const known = egressOf(tx, vmId)
      if (known === null) continue
      for (const instance of instancesByVm(tx, vmId)) {
        if (known.blockedAtMs !== null && instance.egressBlockAppliedAtMs === null) {
          log.warn('an instance has spent its egress and is blocked', {
            instance: instance.id,
            usedBytes: known.usedBytes,
          })
          const detail = { usedBytes: known.usedBytes }
          appendEvent(tx, { nowMs: observedAtMs, kind: 'instance.egress_blocked', subject: instance.id, detail })
        }
        setEgress(tx, {
          id: instance.id,
          egressBytes: known.usedBytes,
          observedAtMs: known.observedAtMs,
          blockAppliedAtMs: known.blockedAtMs,
        })
      }
    }
  })
}
