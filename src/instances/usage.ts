// Usage of an organization's current billing period. Effects: reads the store.

import { iso, isoOrNull } from '../base/clock.ts'
import { egressLimitBytes, type UsageSummary } from '../contract/http/instance.ts'
import type { DirectoryDb } from '../store/db.ts'
import { type EgressTotals, egressTotals, listChangesOverlapping } from '../store/directory/instance.query.ts'
import type { InstanceChange } from '../store/directory/instance.table.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { billingPeriod, formatUsd, hours, type Period, parseUsd, readyMs } from './billing.ts'
import { INSTANCE_TABLE } from './instance.machine.ts'

export type UsagePrices = {
  readonly subscriptionCostUsd: string
  readonly instanceHoursIncluded: number
  readonly overagePerHourUsd: string
}

export type UsageAsked = {
  readonly organization: Organization
  readonly prices: UsagePrices
  readonly nowMs: number
  readonly inferenceCostMicroUsd: (organizationId: string, period: Period) => bigint
}

export function usageOf(db: DirectoryDb, { organization, prices, nowMs, ...asked }: UsageAsked): UsageSummary {
  const { id, createdAtMs } = organization
  const period = billingPeriod(createdAtMs, nowMs)
  const changes = listChangesOverlapping(db, { organizationId: id, fromMs: period.startMs })
  return {
    pricing: {
      period_start: iso(period.startMs),
      period_end: iso(period.endMs),
      subscription_cost_usd: formatUsd(parseUsd(prices.subscriptionCostUsd)),
      instance_hours_included: prices.instanceHoursIncluded,
      overage_per_hour_usd: formatUsd(parseUsd(prices.overagePerHourUsd)),
    },
    usage: {
      instance_hours_used: hours(readyMs(inOrder(changes), { ...period, nowMs })),
      inference_cost_usd: formatUsd(asked.inferenceCostMicroUsd(id, period)),
      ...egressUsage(egressTotals(db, id), nowMs),
    },
  }
}

/**
 * Sorts changes. Hosts may record them in another order, but no status returns, so the order of statuses is that of the
 * changes.
 */
export function inOrder(changes: readonly InstanceChange[]): readonly InstanceChange[] {
  const order = Object.keys(INSTANCE_TABLE)
  return changes.toSorted((a, b) => order.indexOf(a.status) - order.indexOf(b.status))
}

function egressUsage({ bytes, observedAtMs, blockedAtMs }: EgressTotals, nowMs: number) {
  return {
    egress_bytes: bytes,
    egress_limit_bytes: egressLimitBytes,
    egress_observed_at: iso(observedAtMs ?? nowMs),
    egress_blocked: blockedAtMs !== null,
    egress_block_applied_at: isoOrNull(blockedAtMs),
  } as const
}
