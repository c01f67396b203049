// A guest's tap and an uplink that are both in our hands, frame by frame: what is written into the one as a guest
// would, and every byte that comes out of the other. Call it inside `inOwnNetns`. Effects: two taps and the addresses
// of this namespace; the tap may be in the namespace of VMs.

import { closeSync, constants, openSync, readSync, writeFileSync, writeSync } from 'node:fs'
import { hereNetns } from '../../../src/host/network/netns.ts'
import { configureTap, openTap } from '../../../src/host/network/tap.ts'
import { routeVm, type VmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { run } from '../../../src/linux/command.ts'
import { ioctl } from '../../../src/linux/libc.ts'
import { nextHop } from '../guest/two-guests.ts'

export const protocols = { icmp: 1, tcp: 6, udp: 17 } as const
export const worldAddress = '192.0.2.9'
export const hostAddress = '192.0.2.1'
export const tapMtuBytes = 1_500

export type Uplink = Disposable & {
  /** The IPv4 packets that have left by it since the last call, link layer taken off. */
  readonly left: (etherType?: number) => Uint8Array[]
  /** An IPv4 packet comes in by it. */
  readonly arrive: (packet: Uint8Array) => void
}

export type TapWire = Uplink & {
  /** Descriptor of the guest's tap, which QEMU holds otherwise. */
  readonly fd: number
  /** Sends IPv4 packets as the guest. */
  readonly send: (packets: readonly Uint8Array[]) => void
  /** Sends whole frames as the guest. */
  readonly sendFrames: (frames: readonly Uint8Array[]) => void
  /** An Ethernet frame from the guest's card to its tap. */
  readonly frame: (packet: Uint8Array) => Uint8Array
}

export type WireGuest = { readonly tap: string; readonly mac: string; readonly address: string }

const timeouts = { timeoutMs: 60_000, outputBytesMax: 100_000 }
const TUNSETIFF = 0x400454ca
/** IFF_TAP | IFF_NO_PI */
const tapFlags = 0x1002
const etherBytes = 14
const worldMac = '02:00:00:00:99:99'

export type WireOptions = {
  /** For what must not be: a tap that somebody else has opened, with these flags more (linux/if_tun.h). */
  readonly foreignFlags?: number
  /** Where the tap is, once it is open. Default: beside the uplink. */
  readonly namespace?: VmNamespace
}

/** The daemon's own tap, configured as the daemon does; the host forwards. */
export async function openTapWire(guest: WireGuest, { foreignFlags, namespace }: WireOptions = {}): Promise<TapWire> {
  using undo = new DisposableStack()
  const netns = namespace?.netns ?? hereNetns
  const tap = foreignFlags === undefined ? openTap(guest.tap, netns) : foreignTap(guest.tap, foreignFlags)
  undo.defer(tap.close)
  const uplink = undo.use(await openUplink())
  const addresses = { name: guest.tap, nextHop, address: guest.address, mac: guest.mac }
  await configureTap({ ...addresses, mtuBytes: tapMtuBytes, timeoutMs: timeouts.timeoutMs }, netns)
  if (namespace !== undefined)
    await routeVm({ link: namespace.link, nextHop, nextHopV6: '', address: guest.address, addressV6: null })
  const tapMac = netns.run(() => macOf(guest.tap))
  const kept = undo.move()
  const frame = (packet: Uint8Array) => frameOf({ to: tapMac, from: guest.mac, packet })
  const sendFrames = (frames: readonly Uint8Array[]) => {
    for (const bytes of frames) writeSync(tap.fd, bytes)
  }
  return {
    fd: tap.fd,
    frame,
    sendFrames,
    send: packets => sendFrames(packets.map(frame)),
    left: uplink.left,
    arrive: uplink.arrive,
    [Symbol.dispose]: () => kept.dispose(),
  }
}

/** The way to the world, with the world's one address at its end; the host forwards. */
export async function openUplink(): Promise<Uplink> {
  using undo = new DisposableStack()
  const { fd, close } = foreignTap('uplink', 0)
  undo.defer(close)
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1')
  await run(['ip', '-batch', '-'], { ...timeouts, stdin: uplinkBatch })
  const mac = macOf('uplink')
  const buffer = new Uint8Array(70_000)
  const kept = undo.move()
  return {
    left: (etherType = 0x0800) => {
      const packets: Uint8Array[] = []
      for (let size = tryRead(fd, buffer); size > 0; size = tryRead(fd, buffer)) {
        if (((buffer[12] ?? 0) << 8) + (buffer[13] ?? 0) === etherType) packets.push(buffer.slice(etherBytes, size))
      }
      return packets
    },
    arrive: packet => {
      writeSync(fd, frameOf({ to: mac, from: worldMac, packet }))
    },
    [Symbol.dispose]: () => kept.dispose(),
  }
}

/** In no network of the host. */
export const worldAddressV6 = '2a0f:1::9'

/** Leads to `worldAddressV6`, once there is an uplink; the host speaks to nobody there by itself. */
export async function addUplinkV6(): Promise<void> {
  await run(['ip', '-batch', '-'], { ...timeouts, stdin: uplinkBatchV6 })
}

const uplinkBatchV6 = `link set dev uplink addrgenmode none
address add 2a0f:ffff::1/64 dev uplink nodad
neighbour replace 2a0f:ffff::9 lladdr ${worldMac} dev uplink nud permanent
route add ${worldAddressV6}/128 via 2a0f:ffff::9 dev uplink
`

/** Long enough for all that a test sends before it looks. */
const uplinkBatch = `link set dev uplink txqueuelen 20000 up
address add ${hostAddress}/24 dev uplink
neighbour replace ${worldAddress} lladdr ${worldMac} dev uplink nud permanent
`

function foreignTap(name: string, flags: number) {
  const fd = openSync('/dev/net/tun', constants.O_RDWR | constants.O_NONBLOCK)
  const request = new Uint8Array(40)
  request.set(Buffer.from(name), 0)
  new DataView(request.buffer).setUint16(16, tapFlags | flags, true)
  const made = ioctl(fd, TUNSETIFF, request)
  if (!made.ok) throw new Error(`${name}: errno ${made.errno}`)
  return { fd, close: () => closeSync(fd) }
}

/** 0 when nothing waits. */
function tryRead(fd: number, buffer: Uint8Array): number {
  try {
    return readSync(fd, buffer)
  } catch (error) {
    if ((error as { code?: string }).code === 'EAGAIN') return 0
    throw error
  }
}

/** In the namespace that the caller is in. */
function macOf(name: string): string {
  const { stdout } = Bun.spawnSync(['ip', '-json', 'link', 'show', 'dev', name])
  return (JSON.parse(stdout.toString()) as { address: string }[])[0]?.address ?? ''
}

function frameOf({ to, from, packet }: { to: string; from: string; packet: Uint8Array }): Uint8Array {
  return Buffer.concat([macBytes(to), macBytes(from), Uint8Array.of(0x08, 0x00), packet])
}

const macBytes = (mac: string) => Uint8Array.from(mac.split(':'), part => Number.parseInt(part, 16))
export const addressBytes = (address: string) => Uint8Array.from(address.split('.'), Number)

export type PacketPlan = {
  readonly source: string
  readonly destination: string
  readonly protocol: number
  readonly payload: Uint8Array
}

/** An IPv4 packet without options (RFC 791 3.1); it may be fragmented. */
export function ipv4Packet({ source, destination, protocol, payload }: PacketPlan): Uint8Array {
  const packet = new Uint8Array(20 + payload.length)
  const view = new DataView(packet.buffer)
  packet.set([0x45, 0])
  view.setUint16(2, packet.length)
  packet.set([64, protocol], 8)
  packet.set(addressBytes(source), 12)
  packet.set(addressBytes(destination), 16)
  view.setUint16(10, checksum(packet.subarray(0, 20)))
  packet.set(payload, 20)
  return packet
}

/** A datagram of `sizeBytes` in all, from port 4000 to 9, without the optional checksum (RFC 768). */
export function udpPacket(from: Pick<PacketPlan, 'source' | 'destination'>, sizeBytes: number): Uint8Array {
  const payload = new Uint8Array(sizeBytes - 20)
  const view = new DataView(payload.buffer)
  view.setUint16(0, 4_000)
  view.setUint16(2, 9)
  view.setUint16(4, payload.length)
  return ipv4Packet({ ...from, protocol: protocols.udp, payload })
}

/** An echo request of `sizeBytes` altogether (RFC 792). */
export function echoPacket(from: Pick<PacketPlan, 'source' | 'destination'>, sizeBytes: number): Uint8Array {
  const payload = new Uint8Array(sizeBytes - 20)
  const view = new DataView(payload.buffer)
  payload.set([8, 0])
  view.setUint16(4, 77)
  view.setUint16(2, checksum(payload))
  return ipv4Packet({ ...from, protocol: protocols.icmp, payload })
}

export type Segment = {
  readonly sourcePort: number
  readonly destinationPort: number
  readonly sequence: number
  readonly acknowledgment: number
  /** Flags of the header (RFC 9293 3.1): 2 SYN, 16 ACK. */
  readonly flags: number
  readonly options?: readonly number[]
  readonly data?: Uint8Array
}

export const tcpFlags = { syn: 2, ack: 16 } as const

export function tcpPacket(from: Pick<PacketPlan, 'source' | 'destination'>, segment: Segment): Uint8Array {
  const { options = [], data = new Uint8Array() } = segment
  const payload = new Uint8Array(20 + options.length + data.length)
  const view = new DataView(payload.buffer)
  view.setUint16(0, segment.sourcePort)
  view.setUint16(2, segment.destinationPort)
  view.setUint32(4, segment.sequence)
  view.setUint32(8, segment.acknowledgment)
  payload.set([((20 + options.length) / 4) << 4, segment.flags], 12)
  view.setUint16(14, 0xffff)
  payload.set(options, 20)
  payload.set(data, 20 + options.length)
  const pseudo = [...addressBytes(from.source), ...addressBytes(from.destination), 0, protocols.tcp]
  const length = Uint8Array.of(payload.length >> 8, payload.length & 0xff)
  view.setUint16(16, checksum(Buffer.concat([Uint8Array.from(pseudo), length, payload])))
  return ipv4Packet({ ...from, protocol: protocols.tcp, payload })
}

/** RFC 1071. */
function checksum(bytes: Uint8Array): number {
  let sum = 0
  for (let at = 0; at < bytes.length; at += 2) sum += ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  return ~sum & 0xffff
}

export function sizeOf(packets: readonly Uint8Array[]): number {
  return packets.reduce((sum, packet) => sum + packet.length, 0)
}
