import { expect, test } from 'bun:test'
import { probeFrame } from '../../../src/vm/firewall-probe/frame.codec.ts'

const mac = '02:00:00:00:00:01'
const ports = { sourcePort: 40_000, port: 9 }
const ends = {
  ipv4: { source: '10.0.0.1', destination: '10.0.0.2', ethernet: 14, header: 20 },
  ipv6: { source: 'fd00::1', destination: 'fd00::2', ethernet: 14, header: 40 },
} as const

// Goal: no receiver drops a probe for its sum: it fits for every nonce, and one that comes to zero is sent as 0xffff.
test.each(['ipv4', 'ipv6'] as const)('the sum of a UDP probe over %s', family => {
  const { source, destination, ethernet, header } = ends[family]
  const addressBytes = family === 'ipv4' ? 8 : 32
  let sumsOfZero = 0
  const wrong: number[] = []
  // Every sum occurs once within as many nonces in a row.
  for (let nonce = 0; nonce < 65_536; nonce += 1) {
    const packet = { family, protocol: 'udp', source, destination, nonce, ...ports } as const
    const frame = Buffer.from(probeFrame(packet, mac))
    const datagram = frame.subarray(ethernet + header)
    const sum = datagram.readUInt16BE(6)
    if (sum === 0xffff) sumsOfZero += 1
    let total = 17 + datagram.length
    const addresses = frame.subarray(ethernet + header - addressBytes, ethernet + header)
    for (const bytes of [addresses, datagram]) {
      for (let at = 0; at < bytes.length; at += 2) total += bytes.readUInt16BE(at)
    }
    while (total > 0xffff) total = (total & 0xffff) + (total >>> 16)
    if (sum === 0 || total !== 0xffff) wrong.push(nonce)
  }
  expect([wrong, sumsOfZero]).toEqual([[], 1])
})
