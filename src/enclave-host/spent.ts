// What a gateway VM is told of the books: sums of a month, and how many of its own rows are in them. Effects: reads the store.

import type { MonthSums, Want } from '../contract/enclave.ts'
import type { Store } from '../store/db.ts'
import { prepareMonthSum } from '../store/directory/usage-month.query.ts'
import { gatewayById, listGateways } from '../store/ledger/gateway.query.ts'

export type SpentWant = Extract<Want, { kind: 'spent' }>
/** All of it as of one moment. */
export type TellSpent = (vmId: string, want: SpentWant) => MonthSums

export function createTellSpent({
  directory,
  ledger,
  hostId,
}: Pick<Store, 'directory' | 'ledger' | 'hostId'>): TellSpent {
  const sum = prepareMonthSum(directory.db)
  return (vmId, { organizationId, keyPrefix, month }) => ({
    key: sum({ organizationId, keyPrefix, month }),
    organization: sum({ organizationId, keyPrefix: '', month }),
    booked: gatewayById(ledger.db, vmId)?.booked ?? 0,
    isShared: listGateways(ledger.db, hostId).some(other => other.vmId !== vmId),
  })
}
