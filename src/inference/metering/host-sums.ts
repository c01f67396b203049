// The host's answers to a gateway VM: sums of the books, and how many of the VM's own rows they include. Effects: reads
// the store.
//
// While a VM drains, its reservations are added to the sums of a month, so that budgets hold over both VMs. Until the
// old VM reports `draining`, its successor gets no month sums and refuses every key that has a budget. Sums of days
// hold booked rows only.

import { Fault } from '../../base/fault.ts'
import { type DaySums, daySumsPageMax, type EnclaveStatus, type MonthSums } from '../../contract/vm/enclave.ts'
import type { Store } from '../../store/db.ts'
import { prepareDaysPage } from '../../store/directory/usage/usage-day.query.ts'
import { type MonthSum, prepareMonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { gatewayById, listGateways } from '../../store/ledger/gateway.query.ts'
import type { WantOf } from './types.ts'

/** Each answer is as of one moment. */
export type HostSums = {
  /** Fault channel.refused: another VM has not yet reported its reservations. */
  readonly spent: (vmId: string, want: WantOf<'spent'>) => MonthSums
  readonly days: (vmId: string, want: WantOf<'days'>) => DaySums
}

export type HostSumsDeps = Pick<Store, 'directory' | 'ledger' | 'hostId'> & {
  /** Last status that a VM reported. */
  readonly statusOf: (vmId: string) => EnclaveStatus | null
}

export function createHostSums({ directory, ledger, hostId, statusOf }: HostSumsDeps): HostSums {
  const monthSum = prepareMonthSum(directory.db)
  const daysPage = prepareDaysPage(directory.db)
  const bookedOf = (vmId: string) => gatewayById(ledger.db, vmId)?.booked ?? 0
  return {
    spent: (vmId, { organizationId, keyPrefix, month }) => {
      const self = gatewayById(ledger.db, vmId)
      const others = listGateways(ledger.db, hostId).filter(row => row.vmId !== vmId && row.state !== 'starting')
      let key = monthSum({ organizationId, keyPrefix, month })
      let organization = monthSum({ organizationId, keyPrefix: '', month })
      // A VM that drains refuses keys with budgets.
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
