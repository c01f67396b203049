// Gateway VMs that no row names, and rows whose VM is not there. Effects: reads the ledger.

import type { LedgerDb } from '../store/db.ts'
import { listGatewayVms } from '../store/ledger/gateway-vm.query.ts'
import { listVms } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { unnamedVms } from '../vm/held/unnamed.query.ts'
import { gatewayVmImage } from '../vm/launch/image.driver.ts'
import type { Leak } from '../vm/machine/leaks.plan.ts'

/** See other leaks (vm/machine/leaks.plan.ts). */
export type GatewayVmLeak = Leak & { readonly kind: 'gateway' }

/** A VM that is being created or ended may appear here. */
export function findGatewayVmLeaks(db: LedgerDb, hostId: string): GatewayVmLeak[] {
  const living = new Set(listVms(db, hostId).flatMap(vm => (vm.desired === 'gone' ? [] : [vm.id])))
  const missing = listGatewayVms(db, hostId).filter(row => !living.has(row.vmId))
  return [
    ...unnamedGatewayVms(db, hostId).map(({ id }) => gatewayVmLeak(id, 'unknown')),
    ...missing.map(({ vmId }) => gatewayVmLeak(vmId, 'missing')),
  ]
}

/** The name is the id of the VM. */
function gatewayVmLeak(vm: string, detail: 'unknown' | 'missing'): GatewayVmLeak {
  return { kind: 'gateway', name: vm, detail, vm, remedy: REMEDIES[detail] }
}

const REMEDIES = {
  unknown: 'the daemon dismisses it at its next check',
  missing: 'the daemon closes the row and starts another gateway VM at its next check',
} as const

/** Gateway VMs left by a daemon that was killed between row and VM. */
export function unnamedGatewayVms(db: LedgerDb, hostId: string): Vm[] {
  const named = new Set(listGatewayVms(db, hostId).map(row => row.vmId))
  return unnamedVms(db, { hostId, image: gatewayVmImage, named })
}
