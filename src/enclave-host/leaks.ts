// Gateway VMs that no row names, and rows whose VM is not there. Effects: reads the ledger.

import type { LedgerDb } from '../store/db.ts'
import { listGateways } from '../store/ledger/gateway.query.ts'
import { listVms } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { unnamedVms } from '../vm/held/unnamed.query.ts'
import { gatewayImage } from '../vm/launch/image.driver.ts'
import type { Leak } from '../vm/machine/leaks.plan.ts'

/** See other leaks (vm/machine/leaks.plan.ts). */
export type GatewayLeak = Leak & { readonly kind: 'gateway' }

/** A VM that is being created or ended may appear here. */
export function gatewayLeaks(db: LedgerDb, hostId: string): GatewayLeak[] {
  const living = new Set(listVms(db, hostId).flatMap(vm => (vm.desired === 'gone' ? [] : [vm.id])))
  const missing = listGateways(db, hostId).filter(row => !living.has(row.vmId))
  return [
    ...unnamedGatewayVms(db, hostId).map(({ id }) => gatewayLeak(id, 'unknown')),
    ...missing.map(({ vmId }) => gatewayLeak(vmId, 'missing')),
  ]
}

/** The name is the id of the VM. */
function gatewayLeak(vm: string, detail: 'unknown' | 'missing'): GatewayLeak {
  return { kind: 'gateway', name: vm, detail, vm, remedy: REMEDIES[detail] }
}

const REMEDIES = {
  unknown: 'the daemon dismisses it at its next check',
  missing: 'the daemon closes the row and starts another gateway VM at its next check',
} as const

/** Gateway VMs left by a daemon that was killed between row and VM. */
export function unnamedGatewayVms(db: LedgerDb, hostId: string): Vm[] {
  const named = new Set(listGateways(db, hostId).map(row => row.vmId))
  return unnamedVms(db, { hostId, image: gatewayImage, named })
}
