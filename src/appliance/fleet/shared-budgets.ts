// This host's share of the budgets of a fleet, between the usage ledger and the directory. Effects: statements to
// PostgreSQL, SQL on the host's database; gives back what is not used from `start` on.

import { family, metricsText } from '../../base/prometheus.ts'
import type { Runtime } from '../../base/runtime.ts'
import { actingFor } from '../../fleet/acting.ts'
import { BudgetLeases, type BudgetLeasesView } from '../../fleet/budgets/budget-leases.ts'
import type { Metering } from '../../inference/metering/ledger.ts'
import { HostShares } from '../../inference/metering/shares/host-shares.ts'
import type { Store } from '../../store/db.ts'
import type { DirectoryLink } from './directory.ts'
import type { Fleet } from './hosts.ts'

export type SharedBudgetsParts = Pick<Runtime, 'clock' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<DirectoryLink, 'timeline' | 'isMember'>
  readonly store: Pick<Store, 'directory' | 'hostId'>
  readonly metering: Metering
}

export type SharedBudgets = {
  readonly start: () => void
  /** Metrics. */
  readonly render: () => string
} & AsyncDisposable

const NO_SHARED_BUDGETS: SharedBudgets = { start: () => {}, render: () => '', [Symbol.asyncDispose]: async () => {} }

/** Before the gateway is composed. No effect on a host that is in no fleet. */
export function composeSharedBudgets({
  fleet,
  link,
  store,
  metering,
  clock,
  log: logger,
}: SharedBudgetsParts): SharedBudgets {
  if (fleet.database === null) return NO_SHARED_BUDGETS
  const log = logger.unit('fleet')
  const postgres = actingFor(fleet.database.postgres, link.isMember)
  const { directory, hostId } = store
  const leases = new BudgetLeases({ directory, hostId, postgres, timeline: link.timeline, clock, log })
  const ownSpent: Metering['ownSpent'] = (spender, month) => metering.ownSpent(spender, month)
  const shares = new HostShares({ leases, ownSpent, clock, log })
  metering.shares = shares
  const stopping = new AbortController()
  let running: Promise<void> = Promise.resolve()
  return {
    start: () => {
      running = shares.run(stopping.signal)
    },
    render: () => metricsOf(leases.view()),
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await running
    },
  }
}

function metricsOf({ held, ...asked }: BudgetLeasesView): string {
  return metricsText([
    family(
      'strongroom_fleet_budget_parts',
      'Parts of budgets of keys and organizations that this host holds, a month each.',
      'gauge',
      [[{}, held]],
    ),
    family(
      'strongroom_fleet_budget_asks_total',
      'Times that a request needed more of a budget than this host holds; failed: the directory did not say.',
      'counter',
      Object.entries(asked).map(([outcome, count]) => [{ outcome }, count] as const),
    ),
  ])
}
