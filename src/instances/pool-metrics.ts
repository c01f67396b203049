// Metrics of the warm pool. Pure except for the reads of each scrape.

import { type Family, family, metricsText } from '../base/prometheus.ts'
import { INSTANCE_STARTS } from './pool.plan.ts'
import type { WarmPool } from './pool.ts'

export function createPoolMetrics(pool: Pick<WarmPool, 'status' | 'counts'>): { readonly render: () => string } {
  return { render: () => metricsText(families(pool)) }
}

function families(pool: Pick<WarmPool, 'status' | 'counts'>): Family[] {
  const { warm, booting, wanted } = pool.status()
  const { creates, failures, refills, refillMs } = pool.counts()
  return [
    family('strongroom_pool_vms', 'VMs of the warm pool by state.', 'gauge', [
      [{ state: 'warm' }, warm],
      [{ state: 'booting' }, booting],
    ]),
    family('strongroom_pool_vms_wanted', 'VMs that the warm pool is to have.', 'gauge', [[{}, wanted]]),
    family(
      'strongroom_instance_creates_total',
      'Accepted creates: on a VM that was warm, on one of the pool that was booting, or on one of its own.',
      'counter',
      INSTANCE_STARTS.map(start => [{ start }, creates[start]]),
    ),
    family('strongroom_pool_failures_total', 'Times that the warm pool lost VMs.', 'counter', [[{}, failures]]),
    family('strongroom_pool_refills_total', 'VMs of the warm pool that became warm.', 'counter', [[{}, refills]]),
    family('strongroom_pool_refill_seconds_total', 'Time that these took, together.', 'counter', [
      [{}, refillMs / 1000],
    ]),
  ]
}
