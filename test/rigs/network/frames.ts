// Ethernet frames of every kind, as root in a guest could make them, and a program that sends them raw (packet(7)).
// Needs root.

import type { GuestNetwork, Program } from '../../../scripts/rigs/guest/network.ts'
import type { Netns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { formatIpv4, parseIpv4 } from '../../../src/base/ipv4.ts'

export const ETHERTYPES = { ipv4: 0x0800, arp: 0x0806, ipv6: 0x86dd, vlan: 0x8100 } as const
export const PROTOCOLS = {
  icmp: 1,
  igmp: 2,
  ipip: 4,
  tcp: 6,
  udp: 17,
  gre: 47,
  esp: 50,
  icmpv6: 58,
  sctp: 132,
} as const
export const broadcastMac = 'ff:ff:ff:ff:ff:ff'

const concatBytes = (...parts: (number | Uint8Array)[]) =>
  Buffer.concat(parts.map(part => (typeof part === 'number' ? Uint8Array.of(part >> 8, part & 0xff) : part)))
const macOf = (mac: string) => Buffer.from(mac.replaceAll(':', ''), 'hex')
const addressOf = (address: string) => {
  const value = parseIpv4(address)
  return concatBytes(Math.floor(value / 65_536), value % 65_536)
}

export type Link = { readonly from: string; readonly to: string }

export function ethernet({ from, to }: Link, type: number, payload: Uint8Array): Buffer {
  return concatBytes(macOf(to), macOf(from), type, payload)
}

export type Ipv4Packet = {
  readonly from: string
  readonly to: string
  readonly protocol: number
  readonly id?: number
  /** In bytes, a multiple of 8. */
  readonly offset?: number
  readonly moreFragments?: boolean
}

/** RFC 791 3.1. */
export function ipv4(header: Ipv4Packet, payload: Uint8Array): Buffer {
  const { from, to, protocol, id = 1, offset = 0, moreFragments = false } = header
  const flags = (moreFragments ? 0x2000 : 0) | (offset / 8)
  const start = concatBytes(0x4500, 20 + payload.length, id, flags, (64 << 8) | protocol)
  const sum = checksum(concatBytes(start, 0, addressOf(from), addressOf(to)))
  return concatBytes(start, sum, addressOf(from), addressOf(to), payload)
}

/** Without a checksum, which IPv4 allows. RFC 768. */
export function udp(from: number, to: number, payload: Uint8Array): Buffer {
  return concatBytes(from, to, 8 + payload.length, 0, payload)
}

export function tcpHeader(from: number, to: number, flags: number): Buffer {
  return concatBytes(from, to, Buffer.alloc(8), 0x5000 | flags, 1024, Buffer.alloc(4))
}

/** RFC 792; 8 is an echo request. */
export function icmp(type: number, code = 0, rest: Uint8Array = Buffer.alloc(8)): Buffer {
  const start = (type << 8) | code
  return concatBytes(start, checksum(concatBytes(start, 0, rest)), rest)
}

export type Arp = { readonly operation: 1 | 2; readonly mac: string; readonly address: string; readonly target: string }

/** RFC 826, of IPv4 over Ethernet. */
export function arp({ operation, mac, address, target }: Arp): Buffer {
  return concatBytes(
    1,
    ETHERTYPES.ipv4,
    0x0604,
    operation,
    macOf(mac),
    addressOf(address),
    Buffer.alloc(6),
    addressOf(target),
  )
}

/** Addresses are 32 hexadecimal digits each. RFC 8200 3. */
export function ipv6(from: string, to: string, nextHeader: number, payload: Uint8Array): Buffer {
  return concatBytes(0x6000, 0, payload.length, (nextHeader << 8) | 255, Buffer.from(from + to, 'hex'), payload)
}

function checksum(bytes: Uint8Array): number {
  const padded = Buffer.concat([bytes, Buffer.alloc(bytes.length % 2)])
  let sum = 0
  for (let at = 0; at < padded.length; at += 2) sum += padded.readUInt16BE(at)
  while (sum > 0xffff) sum = (sum >>> 16) + (sum & 0xffff)
  return ~sum & 0xffff
}

/** The datagram in fragments whose parts have so many bytes at most. */
export function fragments(header: Ipv4Packet, payload: Uint8Array, partBytes: number): Buffer[] {
  const count = Math.ceil(payload.length / partBytes)
  return Array.from({ length: count }, (_, at) => {
    const offset = at * partBytes
    const part = payload.subarray(offset, offset + partBytes)
    return ipv4({ ...header, offset, moreFragments: at < count - 1 }, part)
  })
}

export const nextAddress = (address: string, step: number) => formatIpv4(parseIpv4(address) + step)

export async function macOfLink(where: Netns, name: string): Promise<string> {
  const [link] = JSON.parse(await where.run(['ip', '-json', 'link', 'show', 'dev', name])) as { address: string }[]
  return link?.address ?? ''
}

/** Frames that the interface has taken in, of whatever kind. */
export async function framesSeen(where: Netns): Promise<number> {
  const text = await where.run(['ip', '-json', '-statistics', 'link', 'show', 'dev', 'eth0'])
  const [link] = JSON.parse(text) as { stats64: { rx: { packets: number } } }[]
  return link?.stats64.rx.packets ?? Number.NaN
}

/** Waits until no kernel is about to ask for a neighbour, or to say that it has found none: frames come by that. */
export async function nobodyAsks(places: readonly Netns[]): Promise<void> {
  const asked = ['nud', 'incomplete', 'nud', 'delay', 'nud', 'probe']
  await until('no kernel is about to ask for a neighbour', 60_000, async () => {
    for (const where of places) if ((await where.run(['ip', 'neighbour', 'show', ...asked])).trim() !== '') return false
    return true
  })
}

export type FrameSender = (frames: readonly Uint8Array[]) => Promise<void>

/** Sends from eth0 of the namespace. */
export async function frameSender(network: GuestNetwork, where: Netns): Promise<FrameSender> {
  const program: Program = await network.program(where, senderCode)
  let turn = 0
  return async frames => {
    turn += 1
    program.write(JSON.stringify({ turn, frames: frames.map(frame => Buffer.from(frame).toString('base64')) }))
    const said = await program.says(`turn ${turn} `)
    if (said !== `turn ${turn} sent ${frames.length}`) throw new Error(said)
  }
}

const senderCode = `const { dlopen, ptr } = require('bun:ffi')
  const { symbols: c } = dlopen('libc.so.6', {
    socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
    if_nametoindex: { args: ['ptr'], returns: 'u32' },
    sendto: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'u32'], returns: 'i64' } })
  const fd = c.socket(17, 3, 0)
  const to = new DataView(new ArrayBuffer(20))
  to.setUint16(0, 17, true)
  to.setInt32(4, c.if_nametoindex(ptr(Buffer.from('eth0\\0'))), true)
  to.setUint8(11, 6)
  console.log('up')
  for await (const line of console) {
    const { turn, frames } = JSON.parse(line)
    let sent = 0
    for (const text of frames) {
      const frame = Buffer.from(text, 'base64')
      if (Number(c.sendto(fd, ptr(frame), frame.length, 0, ptr(to.buffer), 20)) === frame.length) sent += 1
    }
    console.log('turn ' + turn + ' sent ' + sent)
  }`
