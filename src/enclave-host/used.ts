// Sums of the books for a gateway VM, with the count of its own rows in them. Effects: reads the store.
//
// While a VM drains, the cost its requests may still cause is added to the month sums, so that budgets hold over both
// VMs. Until the old VM reports `draining`, its successor gets no month sums and refuses every key that has a budget.
// Day sums are of booked usage.

import { Fault } from '../base/fault.ts'
import { type DaySums, daySumsPageMax, type EnclaveStatus, type MonthSums, type Want } from '../contract/vm/enclave.ts'
import type { Store } from '../store/db.ts'
import { prepareDaysPage } from '../store/directory/usage/usage-day.query.ts'
import { type MonthSum, prepareMonthSum } from '../store/directory/usage/usage-month.query.ts'
import { gatewayById, listGateways } from '../store/ledger/gateway.query.ts'

export type WantOf<Kind extends Want['kind']> = Extract<Want, { kind: Kind }>

/** All of an answer is as of one moment. */
export type TellUsed = {
  /** Fault channel.refused: sums are not available yet. */
  readonly spent: (vmId: string, want: WantOf<'spent'>) => MonthSums
  readonly days: (vmId: string, want: WantOf<'days'>) => DaySums
}

export type TellUsedDeps = Pick<Store, 'directory' | 'ledger' | 'hostId'> & {
  /** Last status of a VM. */
  readonly statusOf: (vmId: string) => EnclaveStatus | null
}

export function createTellUsed({ directory, ledger, hostId, statusOf }: TellUsedDeps): TellUsed {
  const monthSum = prepareMonthSum(directory.db)
  const daysPage = prepareDaysPage(directory.db)
  const bookedOf = (vmId: string) => gatewayById(ledger.db, vmId)?.booked ?? 0
  return {
    spent: (vmId, { organizationId, keyPrefix, month }) => {
      const self = gatewayById(ledger.db, vmId)
      const others = listGateways(ledger.db, hostId).filter(row => row.vmId !== vmId && row.state !== 'starting')
      let key = monthSum({ organizationId, keyPrefix, month })
      let organization = monthSum({ organizationId, keyPrefix: '', month })
      // A VM that drains itself lets nobody with a budget in.
      for (const other of self?.state === 'draining' ? [] : others) {
        const status = statusOf(other.vmId)
        if (status?.state !== 'draining' || status.reserved === null) {
          throw new Fault('channel.refused', `VM ${other.vmId} has not said what its requests may cost yet`)
        }
        for (const reservation of status.reserved ?? []) {
          if (reservation.organizationId !== organizationId) continue
          organization = withReserved(organization, reservation)
          if (reservation.keyPrefix === keyPrefix) key = withReserved(key, reservation)
        }
      }
      return { key, organization, booked: bookedOf(vmId), isShared: others.length > 0 }
    },
    days: (vmId, { after, ...scope }) => {
      const { rows, isLast } = daysPage(scope, after, daySumsPageMax)
      return { rows: [...rows], isLast, booked: bookedOf(vmId) }
    },
  }
}

function withReserved(sum: MonthSum, { tokens, nanoUsd }: { tokens: number; nanoUsd: number }): MonthSum {
  return { ...sum, completionTokens: sum.completionTokens + tokens, costNanoUsd: sum.costNanoUsd + nanoUsd }
}
