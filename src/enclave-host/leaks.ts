// Gateway VMs that no row names, and rows whose VM is not there. Effects: reads the ledger.

import type { LedgerDb } from '../store/db.ts'
import { listGateways } from '../store/ledger/gateway.query.ts'
import { listVms } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { gatewayImage } from '../vm/image.driver.ts'

export type GatewayLeak = {
  readonly kind: 'gateway'
  /** Id of the VM. */
  readonly name: string
  /** As of other leaks (vm/leaks.driver.ts). */
  readonly detail: 'unknown' | 'missing'
}

/** One that is being made or ended at the moment may show up. */
export function gatewayLeaks(db: LedgerDb, hostId: string): GatewayLeak[] {
  const living = new Set(listVms(db, hostId).flatMap(vm => (vm.desired === 'gone' ? [] : [vm.id])))
  const missing = listGateways(db, hostId).filter(row => !living.has(row.vmId))
  return [
    ...unnamedGatewayVms(db, hostId).map(({ id }): GatewayLeak => ({ kind: 'gateway', name: id, detail: 'unknown' })),
    ...missing.map(({ vmId }): GatewayLeak => ({ kind: 'gateway', name: vmId, detail: 'missing' })),
  ]
}

/** Whoever made or ended them was killed in between. */
export function unnamedGatewayVms(db: LedgerDb, hostId: string): Vm[] {
  const named = new Set(listGateways(db, hostId).map(row => row.vmId))
  return listVms(db, hostId).filter(vm => vm.image === gatewayImage && vm.desired !== 'gone' && !named.has(vm.id))
}
