// The books of one host of a fleet: its usage ledger and its share of budgets. Money is a nano-dollar a token. Effects:
// SQL on the host's database, statements to PostgreSQL, timers.

import type { Clock } from '../../../src/base/clock.ts'
import type { Logger } from '../../../src/base/log.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { BudgetLeases } from '../../../src/fleet/budgets/budget-leases.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { Budgets, type Release } from '../../../src/inference/metering/budgets.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { HostShares } from '../../../src/inference/metering/shares/host-shares.ts'
import type { Caller } from '../../../src/inference/types.ts'
import type { DirectoryStore } from '../../../src/store/db.ts'
import { findGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { organizationById } from '../../../src/store/directory/organization.query.ts'

export const model = 'm'

export type HostBudgets = {
  readonly metering: Metering
  readonly budgets: Budgets
  readonly shares: HostShares
  readonly allowances: BudgetLeases
  /** As the copy here has its budgets. */
  readonly caller: (keyPrefix: string) => Caller
  /** Reserves so many tokens. Faults: budget_exceeded, metering_unavailable. */
  readonly reserve: (keyPrefix: string, tokens: number) => Promise<Release | null>
  /** Books a request that has ended, under an id of its own where none is given; returns the id. */
  readonly book: (keyPrefix: string, tokens: number, id?: string) => string
}

export type HostBudgetsDeps = {
  /** The host's own, not the fleet's. */
  readonly directory: DirectoryStore
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query' | 'view'>
  readonly timeline: () => number
  readonly clock: Clock
  readonly log: Logger
  readonly idleMs?: number
}

export function openHostBudgets(deps: HostBudgetsDeps): HostBudgets {
  const { directory, hostId, postgres, timeline, clock, log, idleMs } = deps
  const cost = (_: string, { prompt, completion }: { prompt: number; completion: number }) =>
    BigInt(prompt + completion)
  const metering = new Metering({ store: directory, clock, log, cost })
  const leases = new BudgetLeases({ directory, hostId, postgres, timeline, clock, log })
  const ownSpent: Metering['ownSpent'] = (spender, month) => metering.ownSpent(spender, month)
  const shares = new HostShares({ leases, ownSpent, clock, log, ...(idleMs === undefined ? {} : { idleMs }) })
  metering.shares = shares
  const budgets = new Budgets({ spent: metering, cost: () => cost, clock })
  const worst = (tokens: number) => ({ prompt: tokens, completion: 0 })
  let count = 0
  const caller = (keyPrefix: string) => callerFrom(directory, keyPrefix)
  return {
    ...{ metering, budgets, shares, allowances: leases, caller },
    reserve: (keyPrefix, tokens) => budgets.reserve(caller(keyPrefix), model, { worst: worst(tokens), endUser: null }),
    book: (keyPrefix, tokens, given) => {
      count += 1
      const id = given ?? `${hostId}-${clock.nowMs()}-${process.pid}-${count}`
      metering.record({
        id,
        atMs: clock.nowMs(),
        caller: caller(keyPrefix),
        model,
        upstream: 'u',
        tokens: worst(tokens),
        tokensSource: 'reported',
        outcome: 'completed',
      })
      return id
    },
  }
}

function callerFrom({ db }: DirectoryStore, keyPrefix: string): Caller {
  const key = findGatewayKey(db, keyPrefix)
  const organization = key === null ? null : organizationById(db, key.organizationId)
  if (key === null || organization === null) throw new Error('the copy lacks the key')
  return {
    keyPrefix,
    keyDigest: 'aa'.repeat(32),
    organizationId: organization.id,
    instanceId: null,
    madeBy: 'host',
    requestsPerMinute: 1_000_000,
    tokensPerMinute: 1_000_000_000,
    concurrencyMax: 65_536,
    rules: NO_RULES,
    budgets: {
      key: { nanoUsd: key.budgetNanoUsd, tokens: key.budgetTokens },
      organization: { nanoUsd: organization.budgetNanoUsd, tokens: organization.budgetTokens },
    },
  }
}
