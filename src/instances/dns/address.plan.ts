// Where the name of an instance leads. Pure: the one rule that the name table follows.

import type { Instance } from '../../store/directory/instance.table.ts'
import type { VmView } from '../../vm/engine.ts'

/** IPv4 address, or null for no name: from the moment that its own VM has an address until the VM gives it up, or a delete is accepted. */
export function instanceAddress(
  instance: Pick<Instance, 'desired' | 'vmId'>,
  viewVm: (vmId: string) => Pick<VmView, 'state' | 'address'> | null,
): string | null {
  if (instance.desired === 'absent' || instance.vmId === null) return null
  const vm = viewVm(instance.vmId)
  return vm === null || vm.state === 'failed' || vm.state === 'gone' ? null : vm.address
}
