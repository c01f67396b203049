// Ethernet frames of the probe of other firewalls: the first packet of a TCP connection, or a UDP datagram. Pure.

import { parseIpv4 } from '../../base/ipv4.ts'
import { parseIpv6 } from '../../base/ipv6.ts'

export type ProbePacket = {
  readonly family: 'ipv4' | 'ipv6'
  readonly protocol: 'tcp' | 'udp'
  readonly source: string
  readonly destination: string
  readonly sourcePort: number
  readonly port: number
  /** 32 bits that distinguish this packet from all others: TCP's sequence number, UDP's payload. */
  readonly nonce: number
}

/** Protocol numbers of IP (IANA). */
const PROTOCOLS = { tcp: 6, udp: 17 } as const
const ETHER = {
  ipv4: Buffer.from('0800', 'hex'),
  ipv6: Buffer.from('86dd', 'hex'),
  sender: Buffer.from('02737267707a', 'hex'),
} as const

/** Encodes a frame. `mac`: address of the interface that receives it. */
export function probeFrame(packet: ProbePacket, mac: string): Uint8Array {
  const { family, protocol } = packet
  const ends = Buffer.concat([packet.source, packet.destination].map(address => addressBytes(family, address)))
  const segment = protocol === 'tcp' ? synBytes(packet) : datagramBytes(packet)
  const pseudo = Buffer.alloc(8)
  pseudo.writeUInt32BE(segment.length, 0)
  pseudo.writeUInt32BE(PROTOCOLS[protocol], 4)
  const sum = checksum(Buffer.concat([ends, pseudo, segment]))
  // In UDP, a checksum of zero means that there is none (RFC 768), which IPv6 does not allow (RFC 8200 8.1).
  segment.writeUInt16BE(protocol === 'udp' && sum === 0 ? 0xffff : sum, protocol === 'tcp' ? 16 : 6)
  const header = family === 'ipv4' ? headerV4(packet, segment.length, ends) : headerV6(packet, segment.length)
  const to = Buffer.from(mac.replaceAll(':', ''), 'hex')
  return Buffer.concat([to, ETHER.sender, ETHER[family], header, ends, segment])
}

/** Encodes a SYN segment (RFC 9293 3.1) without options. */
function synBytes({ sourcePort, port, nonce }: ProbePacket): Buffer {
  const segment = Buffer.alloc(20)
  segment.writeUInt16BE(sourcePort, 0)
  segment.writeUInt16BE(port, 2)
  segment.writeUInt32BE(nonce, 4)
  segment.writeUInt16BE(0x5002, 12)
  segment.writeUInt16BE(0xfaf0, 14)
  return segment
}

/** Encodes a datagram (RFC 768). */
function datagramBytes({ sourcePort, port, nonce }: ProbePacket): Buffer {
  const datagram = Buffer.alloc(12)
  datagram.writeUInt16BE(sourcePort, 0)
  datagram.writeUInt16BE(port, 2)
  datagram.writeUInt16BE(datagram.length, 4)
  datagram.writeUInt32BE(nonce, 8)
  return datagram
}

/** Encodes the header (RFC 791 3.1) without the addresses. */
function headerV4({ protocol }: ProbePacket, bytes: number, ends: Buffer): Buffer {
  const header = Buffer.alloc(12)
  header.writeUInt16BE(0x4500, 0)
  header.writeUInt16BE(20 + bytes, 2)
  header.writeUInt8(64, 8)
  header.writeUInt8(PROTOCOLS[protocol], 9)
  header.writeUInt16BE(checksum(Buffer.concat([header, ends])), 10)
  return header
}

/** Encodes the header (RFC 8200 3) without the addresses. */
function headerV6({ protocol }: ProbePacket, bytes: number): Buffer {
  const header = Buffer.alloc(8)
  header.writeUInt8(0x60, 0)
  header.writeUInt16BE(bytes, 4)
  header.writeUInt8(PROTOCOLS[protocol], 6)
  header.writeUInt8(64, 7)
  return header
}

function addressBytes(family: ProbePacket['family'], address: string): Buffer {
  return family === 'ipv4'
    ? Buffer.from(parseIpv4(address).toString(16).padStart(8, '0'), 'hex')
    : Buffer.from(parseIpv6(address).toString(16).padStart(32, '0'), 'hex')
}

/** Computes the checksum (RFC 1071). */
function checksum(bytes: Buffer): number {
  let sum = 0
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  return ~sum & 0xffff
}
