// What a gateway VM is told of the books: sums of a month, and how many of its own rows are in them. Effects: reads the store.
//
// While a VM drains, what its requests may cost yet is added, so that budgets hold over both. Until it has said that it drains, the VM after it is told
// nothing: it lets nobody with a budget in.

import { Fault } from '../base/fault.ts'
import type { EnclaveStatus, MonthSums, Want } from '../contract/enclave.ts'
import type { Store } from '../store/db.ts'
import { type MonthSum, prepareMonthSum } from '../store/directory/usage-month.query.ts'
import { gatewayById, listGateways } from '../store/ledger/gateway.query.ts'

export type SpentWant = Extract<Want, { kind: 'spent' }>
/** All of it as of one moment. Fault channel.refused: it cannot be told yet. */
export type TellSpent = (vmId: string, want: SpentWant) => MonthSums

export type TellSpentDeps = Pick<Store, 'directory' | 'ledger' | 'hostId'> & {
  /** What a VM last said of itself. */
  readonly statusOf: (vmId: string) => EnclaveStatus | null
}

export function createTellSpent({ directory, ledger, hostId, statusOf }: TellSpentDeps): TellSpent {
  const monthSum = prepareMonthSum(directory.db)
  return (vmId, { organizationId, keyPrefix, month }) => {
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
      for (const one of status.reserved ?? []) {
        if (one.organizationId !== organizationId) continue
        organization = withReserved(organization, one)
        if (one.keyPrefix === keyPrefix) key = withReserved(key, one)
      }
    }
    return { key, organization, booked: self?.booked ?? 0, isShared: others.length > 0 }
  }
}

function withReserved(sum: MonthSum, { tokens, nanoUsd }: { tokens: number; nanoUsd: number }): MonthSum {
  return { ...sum, completionTokens: sum.completionTokens + tokens, costNanoUsd: sum.costNanoUsd + nanoUsd }
}
