// Ends TCP connections of others that led to a removed address behind this host. Effects: reads connection tracking
// with conntrack(8) and sends packets, both in one network namespace.
//
// A reset counts only with the receiver's next sequence number (RFC 5961 3.2), which this host does not know. So it
// sends segments that the receiver must answer: an acknowledgement with a wrong number (RFC 9293 3.10.7.4), and a
// SYN-ACK, which it must challenge with any number (RFC 5961 4.2), and which address translation of others passes on.
// The answer contains the number. It is for a connection that this kernel does not have, so the kernel resets it.

import { FFIType, ptr } from 'bun:ffi'
import { closeSync } from 'node:fs'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { parseIpv4 } from '../../base/ipv4.ts'
import { runLines } from '../../linux/command-lines.ts'
import { errno, libcOf } from '../../linux/ffi.ts'
import { errnoName } from '../../linux/libc.ts'
import { isNothingDeleted } from './conntrack.ts'
import type { Netns } from './netns.ts'

/** An established connection, from its client's side. */
export type ClientConnection = { readonly client: Endpoint; readonly server: Endpoint }
type Endpoint = { readonly address: string; readonly port: number }

const lineBytesMax = 4_096

type ResetOptions = {
  /** The namespace of the connections, and the daemon's own network namespace. */
  readonly netns: Netns
  readonly random: RandomBytes
  readonly timeoutMs: number
}

/**
 * Deletes the TCP connections of clients that reached an IPv4 address by an address of this host, and makes each client
 * request its reset. Call it once no rule leads to the address. Returns the number of connections. Omits those of
 * clients that never answered, because strangers can make them with any address. Faults: host.command_failed,
 * host.command_timeout; host.unsupported (no raw socket).
 */
export async function resetClientsOf(address: string, { netns, random, timeoutMs }: ResetOptions): Promise<number> {
  let count = 0
  const fd = netns.run(rawSocket)
  // conntrack prints each deleted entry at once, so there is no wait for the others.
  const argv = ['conntrack', '--delete', '--family', 'ipv4', '--proto', 'tcp', '--status', 'ASSURED']
  const onLine = (line: string): boolean => {
    const connection = parseConnection(line)
    // A connection to the address itself is reset by another namespace, or has no peer that could answer.
    if (connection === null || connection.server.address === address) return true
    challenge(fd, connection, random)
    count += 1
    return true
  }
  try {
    await netns.run(() => runLines([...argv, '--reply-src', address], { timeoutMs, lineBytesMax, onLine }))
  } catch (error) {
    if (!isNothingDeleted(error)) throw error
  } finally {
    closeSync(fd)
  }
  return count
}

/** Opens a raw socket. Throws Fault host.unsupported. */
function rawSocket(): number {
  const fd = libc().socket(INET, RAW, IPPROTO_RAW)
  if (fd < 0) throw new Fault('host.unsupported', `raw socket: ${errnoName(errno())}`)
  return fd
}

/** Parses a line; null unless it is a TCP connection that may still carry data to its client. */
export function parseConnection(line: string): ClientConnection | null {
  const match =
    /^tcp +6 (?:\d+ )?(?:ESTABLISHED|FIN_WAIT|CLOSE_WAIT|LAST_ACK) src=([\d.]+) dst=([\d.]+) sport=(\d+) dport=(\d+) /.exec(
      line,
    )
  if (match === null) return null
  const [, source = '', destination = '', sourcePort, destinationPort] = match
  return {
    client: { address: source, port: Number(sourcePort) },
    server: { address: destination, port: Number(destinationPort) },
  }
}

/** Sends the segments. Ignores failures, because a client that cannot be reached needs no reset. */
function challenge(fd: number, { client, server }: ClientConnection, random: RandomBytes): void {
  const to = new Uint8Array(socketAddressBytes)
  const view = new DataView(to.buffer)
  view.setUint16(0, INET, true)
  view.setUint32(4, parseIpv4(client.address))
  for (const flags of [FLAGS.ack, FLAGS.ack | FLAGS.syn]) {
    const packet = segment({ from: server, to: client, flags, numbers: random(8) })
    libc().sendto(fd, ptr(packet), packet.length, 0, ptr(to), to.length)
  }
}

type Segment = {
  readonly from: Endpoint
  readonly to: Endpoint
  readonly flags: number
  /** Sequence and acknowledgement numbers. */
  readonly numbers: Uint8Array
}

const FLAGS = { syn: 0x02, ack: 0x10 } as const
const ipBytes = 20
const tcpBytes = 20
const ttl = 64
const tcpProtocol = 6

/** Builds IPv4 (RFC 791) and TCP (RFC 9293) without options or data. The kernel adds the checksum of IPv4. */
export function segment({ from, to, flags, numbers }: Segment): Uint8Array {
  const bytes = new Uint8Array(ipBytes + tcpBytes)
  const view = new DataView(bytes.buffer)
  view.setUint8(0, 0x45)
  view.setUint16(2, bytes.length)
  view.setUint8(8, ttl)
  view.setUint8(9, tcpProtocol)
  view.setUint32(12, parseIpv4(from.address))
  view.setUint32(16, parseIpv4(to.address))
  view.setUint16(ipBytes, from.port)
  view.setUint16(ipBytes + 2, to.port)
  bytes.set(numbers.subarray(0, 8), ipBytes + 4)
  view.setUint8(ipBytes + 12, (tcpBytes / 4) << 4)
  view.setUint8(ipBytes + 13, flags)
  view.setUint16(ipBytes + 14, 0xffff)
  view.setUint16(ipBytes + 16, checksum(view))
  return bytes
}

/** Computes the checksum over the addresses, protocol, length and the segment (RFC 9293 3.1). */
function checksum(view: DataView): number {
  let sum = tcpProtocol + tcpBytes
  for (let at = 12; at < view.byteLength; at += 2) sum += view.getUint16(at)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  return ~sum & 0xffff
}

/** include/linux/socket.h, include/linux/net.h, include/uapi/linux/in.h; the same on x86-64 and aarch64. */
export const INET = 2
/** SOCK_RAW, SOCK_CLOEXEC, SOCK_NONBLOCK. */
export const RAW = 3 | 0o2000000 | 0o4000
export const IPPROTO_RAW = 255
/** sockaddr_in. */
export const socketAddressBytes = 16

const { i32, u32, i64, u64, ptr: pointer } = FFIType
const libc = libcOf({
  socket: { args: [i32, i32, i32], returns: i32 },
  sendto: { args: [i32, pointer, u64, i32, pointer, u32], returns: i64 },
})
