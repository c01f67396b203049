// This host's share of the budgets of a fleet, between the usage ledger and the directory. Effects: statements to
// PostgreSQL, SQL on the host's database; gives back what is not used from `start` on.

import type { Runtime } from '../../base/runtime.ts'
import { Allowances } from '../../fleet/books/allowances.ts'
import type { Metering } from '../../inference/metering/ledger.ts'
import { HostShares } from '../../inference/metering/shares/host-shares.ts'
import type { Store } from '../../store/db.ts'
import type { FleetLink } from './directory.ts'
import type { Fleet } from './hosts.ts'

export type BooksParts = Pick<Runtime, 'clock' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<FleetLink, 'timeline'> | null
  readonly store: Pick<Store, 'directory' | 'hostId'>
  readonly metering: Metering
}

export type SharedBooks = { readonly start: () => void } & AsyncDisposable

/** Before the gateway is composed. No effect on a host that is in no fleet. */
export function composeBooks({ fleet, link, store, metering, clock, log: logger }: BooksParts): SharedBooks {
  if (fleet.database === null || link === null) return { start: () => {}, [Symbol.asyncDispose]: async () => {} }
  const log = logger.unit('fleet')
  const { postgres } = fleet.database
  const { directory, hostId } = store
  const allowances = new Allowances({ directory, hostId, postgres, timeline: link.timeline, clock, log })
  const ownSpent: Metering['ownSpent'] = (spender, month) => metering.ownSpent(spender, month)
  const shares = new HostShares({ allowances, ownSpent, clock, log })
  metering.shares = shares
  const stopping = new AbortController()
  let running: Promise<void> = Promise.resolve()
  return {
    start: () => {
      running = shares.run(stopping.signal)
    },
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await running
    },
  }
}
