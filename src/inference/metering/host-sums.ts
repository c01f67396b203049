// The host's answers to a gateway VM: sums of the ledger, and how many of the VM's own rows they include. Effects:
// reads the store.
//
// While a VM drains, its reservations are added to the sums of a month, so that budgets hold over both VMs. Until the
// old VM reports `draining`, its successor gets no month sums and refuses every key that has a budget. Sums of days
// hold booked rows only.
//
// In a fleet the sums cover all hosts, and budgets are limited by this host's share, which the VM requests. A VM of
// an earlier release does not request shares: it enforces budgets by the sums.

import { Fault } from '../../base/fault.ts'
import { type DaySums, daySumsPageMax, type MonthSums } from '../../contract/vm/enclave.ts'
import type { EnclaveStatus } from '../../contract/vm/enclave-responses.ts'
import type { Store } from '../../store/db.ts'
import { prepareDaysPage } from '../../store/directory/usage/usage-day.query.ts'
import { type MonthSum, prepareMonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { findGatewayVm, listGatewayVms } from '../../store/ledger/gateway-vm.query.ts'
import { NO_AMOUNTS, plus } from './shares/amounts.ts'
import type { Amounts, BudgetShares, HostRequestOf, ShareDemand, ShareDemands } from './types.ts'

/** Sums for gateway VMs. Each answer is as of one moment. */
export type HostSums = {
  /** Throws Fault channel.refused if another VM has not yet reported its reservations. */
  readonly spent: (vmId: string, want: HostRequestOf<'spent'>) => MonthSums | Promise<MonthSums>
  readonly days: (vmId: string, want: HostRequestOf<'days'>) => DaySums
}

export type HostSumsDeps = Pick<Store, 'directory' | 'ledger' | 'hostId'> & {
  /** Returns the last status that a VM reported. */
  readonly statusOf: (vmId: string) => EnclaveStatus | null
  /** Null if this host is not in a fleet. */
  readonly shares: Pick<BudgetShares, 'share' | 'raise'> | null
}

export function createHostSums({ directory, ledger, hostId, statusOf, shares }: HostSumsDeps): HostSums {
  const monthSum = prepareMonthSum(directory.db)
  const daysPage = prepareDaysPage(directory.db)
  const bookedOf = (vmId: string) => findGatewayVm(ledger.db, vmId)?.booked ?? 0
  /**
   * Returns the other VMs that may still record usage. Throws Fault channel.refused if one has not reported the cost of
   * its running requests.
   */
  const neighboursOf = (vmId: string, want: HostRequestOf<'spent'>) => {
    const self = findGatewayVm(ledger.db, vmId)
    const others = listGatewayVms(ledger.db, hostId).filter(row => row.vmId !== vmId && row.state !== 'starting')
    // A draining VM refuses keys with budgets.
    const reservations = (self?.state === 'draining' ? [] : others).flatMap(other => {
      const status = statusOf(other.vmId)
      if (status?.state !== 'draining' || status.reserved === null) {
        throw new Fault('channel.refused', `VM ${other.vmId} has not reported the cost of its running requests yet`)
      }
      return status.reserved ?? []
    })
    const ofOrganization = reservations.filter(({ organizationId }) => organizationId === want.organizationId)
    const ofKey = ofOrganization.filter(({ keyPrefix }) => keyPrefix === want.keyPrefix)
    return { count: others.length, organization: total(ofOrganization), key: total(ofKey) }
  }
  const sumsFor = (vmId: string, want: HostRequestOf<'spent'>): MonthSums => {
    const { organizationId, keyPrefix, month } = want
    const others = neighboursOf(vmId, want)
    return {
      key: withReserved(monthSum({ organizationId, keyPrefix, month }), others.key),
      organization: withReserved(monthSum({ organizationId, keyPrefix: '', month }), others.organization),
      booked: bookedOf(vmId),
      isShared: others.count > 0 || shares !== null,
    }
  }
  /** Reads the share in the same turn as the sums. */
  const withShares = async (
    known: NonNullable<typeof shares>,
    vmId: string,
    want: HostRequestOf<'spent'>,
    asked: ShareDemands,
  ) => {
    const { month } = want
    const asking = () => {
      const others = neighboursOf(vmId, want)
      return {
        key: withNeighbours(asked.key, others.key),
        organization: withNeighbours(asked.organization, others.organization),
      }
    }
    const isKnown = await known.raise(want, month, asking).then(
      () => true,
      () => false,
    )
    const sums = sumsFor(vmId, want)
    const share = known.share(want, month)
    if (share === null) return sums
    const others = neighboursOf(vmId, want)
    const key = { ...share.key, spent: withReserved(share.key.spent, others.key) }
    const organization = { ...share.organization, spent: withReserved(share.organization.spent, others.organization) }
    return { ...sums, shares: { key, organization, isKnown } }
  }
  return {
    spent: (vmId, want) =>
      shares === null || want.asked === undefined ? sumsFor(vmId, want) : withShares(shares, vmId, want, want.asked),
    days: (vmId, { after, ...scope }) => {
      const { rows, isLast } = daysPage(scope, after, daySumsPageMax)
      return { rows: [...rows], isLast, booked: bookedOf(vmId) }
    },
  }
}

function withReserved(sum: MonthSum, { tokens, nanoUsd }: Amounts): MonthSum {
  return { ...sum, completionTokens: sum.completionTokens + tokens, costNanoUsd: sum.costNanoUsd + nanoUsd }
}

function total(reservations: readonly Amounts[]): Amounts {
  return reservations.reduce(plus, NO_AMOUNTS)
}

function withNeighbours(asked: ShareDemand | null, others: Amounts): ShareDemand | null {
  return asked === null ? null : { need: plus(asked.need, others), want: plus(asked.want, others) }
}
