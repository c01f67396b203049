// The addresses of an instance's name, and addresses as record bytes. Pure: the only rule for the name table.

import { isIPv4, isIPv6 } from 'node:net'
import { assert } from '../../base/assert.ts'
import type { Instance } from '../../store/directory/instance.table.ts'
import type { VmView } from '../../vm/engine.ts'

/** Addresses as text; null if there is none of the kind. */
export type Addresses = { readonly v4: string | null; readonly v6: string | null }

/**
 * Returns the addresses of an instance's name; null if it has no name. A name exists from when its own VM has an
 * address until the VM releases it or a delete is accepted.
 */
export function instanceAddresses(
  instance: Pick<Instance, 'desired' | 'vmId'>,
  viewVm: (vmId: string) => Pick<VmView, 'state' | 'address' | 'addressV6'> | null,
): Addresses | null {
  if (instance.desired === 'absent' || instance.vmId === null) return null
  const vm = viewVm(instance.vmId)
  if (vm === null || vm.state === 'failed' || vm.state === 'gone') return null
  const { address: v4, addressV6: v6 } = vm
  return v4 === null && v6 === null ? null : { v4, v6 }
}

/** Returns the four bytes of an A record (RFC 1035 3.4.1). */
export function v4Bytes(address: string): Uint8Array {
  assert(isIPv4(address), 'IPv4 address')
  return Uint8Array.from(address.split('.').map(Number))
}

/** Returns the sixteen bytes of an AAAA record (RFC 3596 2.2). The address must have no IPv4 part and no zone. */
export function v6Bytes(address: string): Uint8Array {
  assert(isIPv6(address) && !/[.%]/.test(address), 'IPv6 address in hexadecimal')
  return Uint8Array.from(v6Groups(address).flatMap(group => [group >> 8, group & 0xff]))
}

/**
 * Returns the eight groups (RFC 4291 2.2), also for invalid text. Fast, because it runs for every packet of an IPv6
 * flood.
 */
export function v6Groups(address: string): readonly number[] {
  const parts = address.split(':')
  let missing = 8
  for (const part of parts) if (part !== '') missing -= 1
  const groups: number[] = []
  for (const part of parts) {
    if (part !== '') groups.push(Number.parseInt(part, 16) || 0)
    // A `::` at either end splits into two empty parts.
    else for (; missing > 0; missing -= 1) groups.push(0)
  }
  return groups
}
