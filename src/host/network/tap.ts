// Tap interfaces (Linux Documentation/networking/tuntap.rst). Effects: opens, configures, lists and removes interfaces of our network namespace.
//
// A tap is not persistent: the kernel removes it when nobody holds its descriptor any more, so killing QEMU removes it.

import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { Type } from '@sinclair/typebox'
import { Fault, messageOf, systemErrorCode, wrapFault } from '../../base/fault.ts'
import { checked } from '../../contract/shape.ts'
import { run } from '../../linux/command.ts'
import { errnoName, ioctl } from '../../linux/libc.ts'

export type Tap = {
  readonly name: string
  /** Close-on-exec; a child gets its own copy through `spawnDetached({ extraFds })`. */
  readonly fd: number
  /** Closes our descriptor; the kernel removes the interface with the last one. */
  readonly close: () => void
}

/** Creates a tap, down and without addresses. Faults: conflict (an interface has the name), host.unsupported (no /dev/net/tun, not permitted). */
export function openTap(name: string): Tap {
  checkName(name)
  let fd: number
  try {
    fd = openSync('/dev/net/tun', 'r+')
  } catch (error) {
    throw wrapFault(error, `open tap ${name}`, 'host.unsupported')
  }
  const created = ioctl(fd, TUNSETIFF, interfaceRequest(name))
  if (!created.ok) {
    closeSync(fd)
    const taken = created.errno === constants.errno.EBUSY || created.errno === constants.errno.EEXIST
    throw new Fault(taken ? 'conflict' : 'host.unsupported', `open tap ${name}: ${errnoName(created.errno)}`)
  }
  let open = true
  return {
    name,
    fd,
    close: () => {
      if (open) closeSync(fd)
      open = false
    },
  }
}

// include/uapi/linux/if_tun.h
const TUNSETIFF = 0x400454ca
const FLAGS = { tap: 0x0002, noPacketInfo: 0x1000, exclusive: 0x8000 } as const

/** struct ifreq, include/uapi/linux/if.h; [offset, size]. */
const IFREQ = { name: [0, 16], flags: [16, 2], rest: [18, 22] } as const satisfies Record<
  string,
  readonly [offset: number, sizeBytes: number]
>
const ifreqBytes = 40

function interfaceRequest(name: string): Uint8Array {
  const request = new Uint8Array(ifreqBytes)
  request.set(Buffer.from(name), IFREQ.name[0])
  // Without IFF_VNET_HDR: in that header a guest says how the kernel is to cut its frame into packets, and the cap counts before it is cut.
  const flags = FLAGS.tap | FLAGS.noPacketInfo | FLAGS.exclusive
  new DataView(request.buffer).setUint16(IFREQ.flags[0], flags, true)
  return request
}

export type TapAddresses = {
  readonly name: string
  /** The host's address, the same on every tap. */
  readonly gateway: string
  /** The VM's, routed to this tap alone. */
  readonly address: string
  /** The VM's. When it is given, nobody can claim the VM's address by ARP. */
  readonly mac?: string
  /** Whether clients at loopback addresses of this host are led to the VM (vm/nft.plan.ts, which keeps it from coming back that way). */
  readonly loopbackClients?: boolean
  readonly mtuBytes: number
  readonly timeoutMs: number
}

/** Brings the tap up with its route; safe to repeat. Faults: host.command_failed, host.command_timeout. */
export async function configureTap(tap: TapAddresses): Promise<void> {
  checkName(tap.name)
  // Before `up`: no moment with IPv6 or loose filters.
  for (const [path, value] of tapSettings(tap)) writeSetting(path, value)
  await run(['ip', '-batch', '-'], { stdin: tapBatch(tap), timeoutMs: tap.timeoutMs, outputBytesMax })
}

/** Commands for `ip -batch -`. Pure. */
export function tapBatch({ name, gateway, address, mac, mtuBytes }: Omit<TapAddresses, 'timeoutMs'>): string {
  const lines = [
    `link set dev ${name} mtu ${mtuBytes} up`,
    `address replace ${gateway}/32 dev ${name} scope link`,
    `route replace ${address}/32 dev ${name} src ${gateway}`,
    ...(mac === undefined ? [] : [`neighbour replace ${address} lladdr ${mac} dev ${name} nud permanent`]),
  ]
  return `${lines.join('\n')}\n`
}

/** Settings below /proc/sys/net of one tap (Documentation/networking/ip-sysctl.rst). Pure. */
export function tapSettings({
  name,
  loopbackClients = false,
}: Pick<TapAddresses, 'name' | 'loopbackClients'>): [path: string, value: string][] {
  const v4 = `/proc/sys/net/ipv4/conf/${name}`
  const v6 = `/proc/sys/net/ipv6/conf/${name}`
  return [
    [`${v6}/accept_ra`, '0'],
    [`${v6}/disable_ipv6`, '1'],
    // A source that is not routed back to this tap is spoofed.
    [`${v4}/rp_filter`, '1'],
    // Else packets of a loopback address neither leave nor come back by it.
    [`${v4}/route_localnet`, loopbackClients ? '1' : '0'],
    // Answer ARP for the gateway only, and ask with it, not with other addresses of the host.
    [`${v4}/arp_ignore`, '1'],
    [`${v4}/arp_announce`, '2'],
    [`${v4}/accept_redirects`, '0'],
    [`${v4}/send_redirects`, '0'],
    [`${v4}/forwarding`, '1'],
  ]
}

function writeSetting(path: string, value: string): void {
  try {
    writeFileSync(path, value)
  } catch (error) {
    // A kernel without IPv6 has nothing to switch off.
    if (path.startsWith('/proc/sys/net/ipv6/') && systemErrorCode(error) === 'ENOENT') return
    throw new Fault('host.command_failed', `write ${path}: ${messageOf(error)}`, { cause: error })
  }
}

const outputBytesMax = 4_194_304
const Links = Type.Array(Type.Object({ ifname: Type.Optional(Type.String()) }))

/** `routed`: up, with the way to its address. `unrouted`: there, but down or without it. `gone`: the interface is no more. */
export type TapState = 'routed' | 'unrouted' | 'gone'

/** From /proc alone (proc(5), net/dev and net/route): it is asked often. */
export function tapState(name: string, address: string): TapState {
  checkName(name)
  const fields = (path: string) =>
    readFileSync(path, 'utf8')
      .split('\n')
      .map(line => line.trim().split(/[\s:]+/))
  if (!fields('/proc/self/net/dev').some(([device]) => device === name)) return 'gone'
  // Bytes as they lie in memory, read as a number of this (little-endian) machine.
  const hex = address
    .split('.')
    .map(byte => Number(byte).toString(16).padStart(2, '0'))
    .reverse()
    .join('')
    .toUpperCase()
  // A route goes with its interface being up.
  const isRouted = fields('/proc/self/net/route').some(
    ([device, destination, , , , , , mask]) => device === name && destination === hex && mask === 'FFFFFFFF',
  )
  return isRouted ? 'routed' : 'unrouted'
}

const etherHeaderBytes = 14

/**
 * What each interface of this network namespace has taken in since it was made, link-layer headers taken off: of a tap what its holder has
 * written, whatever became of it. From /proc alone (proc(5), net/dev): it is asked often.
 */
export function receivedBytes(): ReadonlyMap<string, number> {
  const lines = readFileSync('/proc/self/net/dev', 'utf8').split('\n').slice(2)
  return new Map(
    lines.flatMap(line => {
      const [name = '', bytes, packets] = line.trim().split(/[\s:]+/)
      const received = Number(bytes) - etherHeaderBytes * Number(packets)
      return Number.isSafeInteger(received) ? [[name, Math.max(0, received)]] : []
    }),
  )
}

/** Names of the tun and tap interfaces that begin with `prefix`. Faults: host.command_failed, host.command_timeout. */
export async function listTaps(prefix: string, timeoutMs: number): Promise<string[]> {
  const { stdout } = await run(['ip', '-json', '-details', 'link', 'show', 'type', 'tun'], {
    timeoutMs,
    outputBytesMax,
  })
  const links = checked(Links, JSON.parse(stdout || '[]'), { what: 'ip link', code: 'host.command_failed' })
  return links.flatMap(({ ifname }) => (ifname?.startsWith(prefix) ? [ifname] : [])).sort()
}

/** Removes the interface even while QEMU holds its descriptor. No effect if already removed. Faults: host.command_failed, host.command_timeout. */
export async function removeTap(name: string, timeoutMs: number): Promise<void> {
  checkName(name)
  try {
    await run(['ip', 'link', 'delete', 'dev', name], { timeoutMs, outputBytesMax })
  } catch (error) {
    const remaining = await listTaps(name, timeoutMs)
    if (remaining.includes(name)) throw error
  }
}

/** IFNAMSIZ is 16 with the final NUL. Names are ours, but they go into a batch and into paths. */
function checkName(name: string): void {
  if (!/^[a-z][a-z0-9-]{0,14}$/.test(name)) throw new Fault('internal', `not a tap name: ${JSON.stringify(name)}`)
}
