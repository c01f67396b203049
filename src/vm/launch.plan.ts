// Names and paths derived from a VM's id, which a restarted daemon derives again, and addresses of the pools. Pure.

import { assert } from '../base/assert.ts'
import { formatIpv6, rangeOfV6 } from '../base/ipv6.ts'

export type VmPaths = {
  /** Only root can enter it. QEMU gets its files as open descriptors. */
  readonly directory: string
  readonly qmp: string
  /**
   * Second monitor, for the operator, because a socket serves one client, and a hung client must not lock the operator
   * out.
   */
  readonly qmpRescue: string
  readonly channel: string
  readonly console: string
  readonly qemuLog: string
  readonly scratch: string
  readonly exchange: string
  /** State of the VM's swtpm, if it has one. */
  readonly tpmState: string
  readonly tpmLog: string
}

export const scratchFileName = 'scratch.img'

/** Returns the files of one VM under the state directory. */
export function vmPaths(stateDir: string, vmId: string): VmPaths {
  const directory = `${stateDir}/vms/${vmId}`
  return {
    directory,
    qmp: `${directory}/qmp.sock`,
    qmpRescue: `${directory}/rescue.sock`,
    channel: `${directory}/agent.sock`,
    console: `${directory}/console.sock`,
    qemuLog: `${directory}/qemu.log`,
    scratch: `${directory}/${scratchFileName}`,
    exchange: `${directory}/exchange.img`,
    tpmState: `${directory}/tpm.state`,
    tpmLog: `${directory}/tpm.log`,
  }
}

/** Range of the VMs' user ids, both ends included. Each VM has one. No other program on this host may use them. */
export type UidRange = { readonly min: number; readonly max: number }

export function uidCount({ min, max }: UidRange): number {
  return max - min + 1
}

/** Returns the first free uid from `start` on, wrapping around. Null if all are taken. */
export function freeUid(range: UidRange, start: number, isTaken: (uid: number) => boolean): number | null {
  const count = uidCount(range)
  for (let step = 0; step < count; step += 1) {
    const uid = range.min + ((start + step) % count)
    if (!isTaken(uid)) return uid
  }
  return null
}

/**
 * Returns the interface name: the configured prefix and 10 hexadecimal digits of the VM id (IFNAMSIZ allows 15
 * characters).
 */
export function tapName(prefix: string, vmId: string): string {
  const name = prefix + hexOf(vmId).slice(0, 10)
  assert(name.length <= 15, 'an interface name has at most 15 characters')
  return name
}

/** Reports whether a name is one of ours, for any VM. */
export function isTapName(prefix: string, name: string): boolean {
  return name.startsWith(prefix) && /^[0-9a-f]{10}$/.test(name.slice(prefix.length))
}

/** Returns a locally administered unicast MAC, derived from the VM id. */
export function macAddress(vmId: string): string {
  const hex = hexOf(vmId)
  return ['02', ...[0, 2, 4, 6, 8].map(at => hex.slice(at, at + 2))].join(':')
}

/** Returns the number of usable addresses of an IPv4 pool: all except the network's first and last. */
export function poolSize(pool: string): number {
  return 2 ** (32 - prefixOf(pool)) - 2
}

/** Returns the lowest free address of the pool. Null if all are taken. */
export function freeAddress(pool: string, taken: ReadonlySet<string>): string | null {
  const base = toNumber(pool.slice(0, pool.indexOf('/')))
  const first = base - (base % 2 ** (32 - prefixOf(pool)))
  for (let offset = 1; offset <= poolSize(pool); offset += 1) {
    const address = toDotted(first + offset)
    if (!taken.has(address)) return address
  }
  return null
}

/** Number of usable addresses of any IPv6 pool: that of the largest IPv4 pool. */
export const poolSizeV6 = 65_534

/**
 * Returns the lowest free address of an IPv6 pool after the first, the routers' anycast address (RFC 4291 2.6.1). Null
 * if all are taken. In a /48 pool each VM gets the first address of its own /64, by which other networks distinguish
 * clients.
 */
export function freeAddressV6(pool: string, taken: ReadonlySet<string>): string | null {
  const { first } = rangeOfV6(pool)
  const isWide = prefixOf(pool) === 48
  for (let offset = 1n; offset <= poolSizeV6; offset += 1n) {
    const address = formatIpv6(first + (isWide ? (offset << 64n) + 1n : offset))
    if (!taken.has(address)) return address
  }
  return null
}

function prefixOf(pool: string): number {
  return Number(pool.slice(pool.indexOf('/') + 1))
}

function toNumber(dotted: string): number {
  return dotted.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)
}

function toDotted(value: number): string {
  return [24, 16, 8, 0].map(shift => Math.floor(value / 2 ** shift) % 256).join('.')
}

function hexOf(vmId: string): string {
  const hex = vmId.replaceAll('-', '')
  assert(/^[0-9a-f]{32}$/.test(hex), 'a VM id is a UUID')
  return hex
}
