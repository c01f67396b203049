// Tap interfaces (Linux Documentation/networking/tuntap.rst). Effects: opens, configures, moves, lists and removes
// interfaces of one network namespace.
//
// A tap is not persistent: the kernel removes it with its last descriptor, so killing QEMU removes it.

import { closeSync, openSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { Type } from '@sinclair/typebox'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { parseIpv6 } from '../../base/ipv6.ts'
import { checked } from '../../contract/check.ts'
import { run } from '../../linux/command.ts'
import { errnoName, ioctl } from '../../linux/libc.ts'
import { hereNetns, type Netns } from './netns.ts'
import { writeSetting } from './setting.ts'

export type Tap = {
  readonly name: string
  /** Close-on-exec; a child gets its own copy through `spawnDetached({ extraFds })`. */
  readonly fd: number
  /** Closes our descriptor; the kernel removes the interface with the last one. */
  readonly close: () => void
}

/** Creates a tap, down, without addresses. Faults: conflict (the name exists), host.unsupported (no /dev/net/tun). */
export function openTap(name: string, netns: Netns = hereNetns): Tap {
  checkName(name)
  return netns.run(() => createTap(name))
}

function createTap(name: string): Tap {
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
export const TUNSETIFF = 0x400454ca
export const FLAGS = { tap: 0x0002, noPacketInfo: 0x1000, exclusive: 0x8000 } as const

/** struct ifreq, include/uapi/linux/if.h; [offset, size]. */
export const IFREQ = { name: [0, 16], flags: [16, 2], rest: [18, 22] } as const satisfies Record<
  string,
  readonly [offset: number, sizeBytes: number]
>
export const ifreqBytes = 40

function interfaceRequest(name: string): Uint8Array {
  const request = new Uint8Array(ifreqBytes)
  request.set(Buffer.from(name), IFREQ.name[0])
  // No IFF_VNET_HDR: with that header the kernel would segment a guest's frames after the cap has counted them.
  const flags = FLAGS.tap | FLAGS.noPacketInfo | FLAGS.exclusive
  new DataView(request.buffer).setUint16(IFREQ.flags[0], flags, true)
  return request
}

export type TapAddresses = {
  readonly name: string
  /** The host's IPv4 address for guests, their default route, the same on every tap. */
  readonly nextHop: string
  /** The VM's address, routed only to this tap; null if it has no IPv4. */
  readonly address: string | null
  /** The same for IPv6. Absent if the tap has none. */
  readonly v6?: { readonly nextHop: string; readonly address: string }
  /** The VM's MAC. If it is set, no machine can claim the VM's addresses by ARP or neighbour discovery. */
  readonly mac?: string
  readonly mtuBytes: number
  readonly timeoutMs: number
}

/** MAC of every tap with IPv6, configured in guests. MACs of VMs begin differently (vm/launch.plan.ts). */
export const tapMac = '0a:73:74:72:6f:6e'

/** Brings the tap up with its routes; safe to repeat. Faults: host.command_failed, host.command_timeout. */
export async function configureTap(tap: TapAddresses, netns: Netns = hereNetns): Promise<void> {
  checkName(tap.name)
  await netns.run(() => {
    // Before `up`, so that there is never unrequested IPv6 or a loose filter.
    for (const [path, value] of tapSettings(tap)) writeSetting(path, value)
    return run(['ip', '-batch', '-'], { stdin: tapBatch(tap), timeoutMs: tap.timeoutMs, outputBytesMax })
  })
}

/** Returns commands for `ip -batch -`. Pure. */
export function tapBatch({ name, nextHop, address, v6, mac, mtuBytes }: Omit<TapAddresses, 'timeoutMs'>): string {
  const neighbour = (of: string) =>
    mac === undefined ? [] : [`neighbour replace ${of} lladdr ${mac} dev ${name} nud permanent`]
  const lines = [
    ...(v6 === undefined ? [] : [`link set dev ${name} address ${tapMac}`]),
    `link set dev ${name} mtu ${mtuBytes} up`,
    ...(address === null
      ? []
      : [
          `address replace ${nextHop}/32 dev ${name} scope link`,
          `route replace ${address}/32 dev ${name} src ${nextHop}`,
          // The route to this address leads out of the namespace, so the kernel answers for it only if configured to.
          `neighbour replace proxy ${nextHop} dev ${name}`,
          ...neighbour(address),
        ]),
    ...(v6 === undefined
      ? []
      : [
          // Deprecated, so that this host uses it only for its VMs (RFC 6724 5, rule 3).
          `address replace ${v6.nextHop}/128 dev ${name} nodad noprefixroute preferred_lft 0`,
          `route replace ${v6.address}/128 dev ${name} src ${v6.nextHop}`,
          ...neighbour(v6.address),
        ]),
  ]
  return `${lines.join('\n')}\n`
}

/** Returns settings below /proc/sys/net of one tap (Documentation/networking/ip-sysctl.rst). Pure. */
export function tapSettings({
  name,
  v6: addressesV6,
}: Pick<TapAddresses, 'name' | 'v6'>): [path: string, value: string][] {
  const v4 = `/proc/sys/net/ipv4/conf/${name}`
  const v6 = `/proc/sys/net/ipv6/conf/${name}`
  return [
    [`${v6}/accept_ra`, '0'],
    ...(addressesV6 === undefined
      ? ([[`${v6}/disable_ipv6`, '1']] satisfies [string, string][])
      : ([
          // No automatic address (IN6_ADDR_GEN_MODE_NONE), so that the kernel sends nothing by itself.
          [`${v6}/addr_gen_mode`, '1'],
          [`${v6}/autoconf`, '0'],
          [`${v6}/accept_redirects`, '0'],
          [`${v6}/proxy_ndp`, '0'],
          [`${v6}/forwarding`, '1'],
          [`${v6}/disable_ipv6`, '0'],
        ] satisfies [string, string][])),
    // A source that is not routed back to this tap is spoofed.
    [`${v4}/rp_filter`, '1'],
    // Otherwise a guest would wait most of a second for the next hop's MAC.
    [`/proc/sys/net/ipv4/neigh/${name}/proxy_delay`, '0'],
    // Answers ARP only for the next hop, and queries with its address, not with others of the host.
    [`${v4}/arp_ignore`, '1'],
    [`${v4}/arp_announce`, '2'],
    [`${v4}/accept_redirects`, '0'],
    [`${v4}/send_redirects`, '0'],
    [`${v4}/forwarding`, '1'],
  ]
}

const outputBytesMax = 4_194_304
const Links = Type.Array(Type.Object({ ifname: Type.Optional(Type.String()) }))

/**
 * `routed`: up, with its route, and this host's by the link. `unrouted`: some of this is missing. `gone`: no such
 * interface.
 */
export type TapState = 'routed' | 'unrouted' | 'gone'

/** Namespace of a tap, and the interface of this host that leads there. Null for the namespace of the process. */
type TapPlace = { readonly netns: Netns; readonly link: string } | null

/** Returns the state of a tap. Reads only /proc (proc(5), net/dev, net/route and net/ipv6_route). */
export function tapState(name: string, routed: Routed, place: TapPlace = null): TapState {
  return stateIn(readTables(place), name, routed)
}

/** How long one reading is cached for interfaces that it contains. */
const tablesMs = 1_000

/**
 * Returns states of many taps from one reading per second, because with a thousand taps the tables have as many lines.
 * Before it returns `gone` it reads again, because a tap may be newer than the reading.
 */
export class TapStates {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  readonly #place: TapPlace
  #tables: Tables | null = null
  #readAtMs = Number.NEGATIVE_INFINITY

  constructor(clock: Pick<Clock, 'monotonicMs'>, place: TapPlace = null) {
    this.#clock = clock
    this.#place = place
  }

  of(name: string, routed: Routed): TapState {
    const isFresh = this.#clock.monotonicMs() - this.#readAtMs < tablesMs
    const known = isFresh && this.#tables !== null ? stateIn(this.#tables, name, routed) : 'gone'
    if (known !== 'gone') return known
    this.#tables = readTables(this.#place)
    this.#readAtMs = this.#clock.monotonicMs()
    return stateIn(this.#tables, name, routed)
  }
}

/** Names of interfaces, and `INTERFACE ADDRESS` of routes to single addresses, in the kernel's form. */
type Tables = {
  readonly names: ReadonlySet<string>
  readonly routes: ReadonlySet<string>
  /** This host's route to the namespace, and its routes. Null if there is no link in between. */
  readonly link: { readonly name: string; readonly routes: ReadonlySet<string> } | null
}

function readTables(place: TapPlace): Tables {
  const inside = () => ({ names: new Set(interfaceNames()), routes: readRoutes() })
  if (place === null) return { ...inside(), link: null }
  return { ...place.netns.run(inside), link: { name: place.link, routes: readRoutes() } }
}

function linesOf(path: string): string[] {
  return readFileSync(`/proc/thread-self/net/${path}`, 'utf8').split('\n')
}

/** Returns the interfaces of the namespace that the caller is in. */
export function interfaceNames(): string[] {
  return linesOf('dev').map(line => line.slice(0, Math.max(0, line.indexOf(':'))).trim())
}

function readRoutes(): Set<string> {
  const v4 = linesOf('route').flatMap(line => {
    const [name = '', destination = '', , , , , , mask] = line.split('\t')
    return mask === 'FFFFFFFF' ? [`${name} ${destination}`] : []
  })
  const v6 = linesOf('ipv6_route').flatMap(line => {
    const [destination = '', length, ...rest] = line.trim().split(/\s+/)
    return length === '80' ? [`${rest.at(-1)} ${destination}`] : []
  })
  return new Set([...v4, ...v6])
}

function stateIn({ names, routes, link }: Tables, name: string, { address, addressV6 }: Routed): TapState {
  checkName(name)
  if (!names.has(name)) return 'gone'
  // A route exists only while its interface is up.
  const hasAll = (by: string, among: ReadonlySet<string>) =>
    (address === null || among.has(`${by} ${hexOf(address)}`)) &&
    (addressV6 === null || among.has(`${by} ${hexOfV6(addressV6)}`))
  return hasAll(name, routes) && (link === null || hasAll(link.name, link.routes)) ? 'routed' : 'unrouted'
}

/** Addresses of a VM; null if there is none of this family. */
type Routed = { readonly address: string | null; readonly addressV6: string | null }

/** Formats an address in the form of the tables: its bytes, read as a number of this (little-endian) machine. */
function hexOf(address: string): string {
  return address
    .split('.')
    .map(byte => Number(byte).toString(16).padStart(2, '0'))
    .reverse()
    .join('')
    .toUpperCase()
}

function hexOfV6(address: string): string {
  return parseIpv6(address).toString(16).padStart(32, '0')
}

const etherHeaderBytes = 14

/**
 * Returns the bytes that each interface of the namespace has received since its creation, without link-layer headers:
 * for a tap, the bytes that its holder wrote, dropped packets included. Called often, so it reads only /proc (proc(5),
 * net/dev).
 */
export function receivedBytes(netns: Netns = hereNetns): ReadonlyMap<string, number> {
  const lines = netns.run(() => linesOf('dev')).slice(2)
  return new Map(
    lines.flatMap(line => {
      const [name = '', bytes, packets] = line.trim().split(/[\s:]+/)
      const received = Number(bytes) - etherHeaderBytes * Number(packets)
      return Number.isSafeInteger(received) ? [[name, Math.max(0, received)]] : []
    }),
  )
}

/**
 * Returns the names of tun and tap interfaces that begin with `prefix`. Faults: host.command_failed,
 * host.command_timeout.
 */
export async function listTaps(prefix: string, timeoutMs: number, netns: Netns = hereNetns): Promise<string[]> {
  const { stdout } = await netns.run(() =>
    run(['ip', '-json', '-details', 'link', 'show', 'type', 'tun'], { timeoutMs, outputBytesMax }),
  )
  const links = checked(Links, JSON.parse(stdout || '[]'), { what: 'ip link', code: 'host.command_failed' })
  return links.flatMap(({ ifname }) => (ifname?.startsWith(prefix) ? [ifname] : [])).sort()
}

/**
 * Removes the interface, even one in use. No effect if there is none. Faults: host.command_failed,
 * host.command_timeout.
 */
export async function removeTap(name: string, timeoutMs: number, netns: Netns = hereNetns): Promise<void> {
  checkName(name)
  try {
    await netns.run(() => run(['ip', 'link', 'delete', 'dev', name], { timeoutMs, outputBytesMax }))
  } catch (error) {
    const remaining = await listTaps(name, timeoutMs, netns)
    if (remaining.includes(name)) throw error
  }
}

/**
 * Moves a tap of this process's namespace into the one that is mounted on `file`. It keeps its counters and its holder,
 * and is down afterwards, without addresses and routes. Faults: host.command_failed, host.command_timeout.
 */
export async function moveTap(
  name: string,
  { file, timeoutMs }: { readonly file: string; readonly timeoutMs: number },
) {
  checkName(name)
  await run(['ip', 'link', 'set', 'dev', name, 'netns', file], { timeoutMs, outputBytesMax })
}

/**
 * Checks a name. IFNAMSIZ is 16 with the final NUL. Names are ours, but they are written into a batch and into paths.
 */
function checkName(name: string): void {
  if (!/^[a-z][a-z0-9-]{0,14}$/.test(name)) throw new Fault('internal', `not a tap name: ${JSON.stringify(name)}`)
}
