// IPv6 packets of every kind, as a root user in a guest could make them. Pure.

import { parseIpv6 } from '../../../src/base/ipv6.ts'
import { ETHERTYPES, ethernet, ipv6, type Link, PROTOCOLS, udp } from './frames.ts'

export type Ipv6Packet = {
  readonly link: Link
  readonly from: string
  readonly to: string
}

const hexOf = (address: string) => parseIpv6(address).toString(16).padStart(32, '0')

/** RFC 8200 3; `next` is whatever follows, with its number. */
export function frameV6({ link, from, to }: Ipv6Packet, next: number, payload: Uint8Array): Buffer {
  return ethernet(link, ETHERTYPES.ipv6, ipv6(hexOf(from), hexOf(to), next, payload))
}

/** With its checksum, without which IPv6 takes none (RFC 8200 8.1). */
export function udpFrameV6(packet: Ipv6Packet, [from, to]: readonly [number, number], payload: Uint8Array): Buffer {
  const datagram = udp(from, to, payload)
  datagram.writeUInt16BE(checksumV6(packet, PROTOCOLS.udp, datagram) || 0xffff, 6)
  return frameV6(packet, PROTOCOLS.udp, datagram)
}

/** RFC 4443 2.1. */
export function icmpFrameV6(packet: Ipv6Packet, type: number, rest: Uint8Array = Buffer.alloc(4)): Buffer {
  const message = Buffer.concat([Buffer.from([type, 0, 0, 0]), rest])
  message.writeUInt16BE(checksumV6(packet, PROTOCOLS.icmpv6, message), 2)
  return frameV6(packet, PROTOCOLS.icmpv6, message)
}

/** Checksum over the pseudo-header and the payload (RFC 8200 8.1). */
function checksumV6({ from, to }: Ipv6Packet, next: number, payload: Uint8Array): number {
  const pseudo = Buffer.concat([Buffer.from(hexOf(from) + hexOf(to), 'hex'), Buffer.alloc(8)])
  pseudo.writeUInt32BE(payload.length, 32)
  pseudo[39] = next
  const bytes = Buffer.concat([pseudo, payload, Buffer.alloc(payload.length % 2)])
  let sum = 0
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at)
  while (sum > 0xffff) sum = (sum >>> 16) + (sum & 0xffff)
  return ~sum & 0xffff
}
