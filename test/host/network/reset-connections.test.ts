// Lines of conntrack(8), and the segments that make a client ask for its reset.

import { expect, test } from 'bun:test'
import { parseConnection, segment } from '../../../src/host/network/reset-connections.ts'

const ends = 'src=192.0.2.9 dst=192.0.2.1 sport=40000 dport=9442 src=10.88.0.1 dst=192.0.2.9 sport=8442 dport=40000'

// Goal: a client is challenged where it knows the connection, and only while the connection can still carry something.
test('connections', () => {
  const connection = { client: { address: '192.0.2.9', port: 40_000 }, server: { address: '192.0.2.1', port: 9_442 } }
  for (const state of ['ESTABLISHED', 'FIN_WAIT', 'CLOSE_WAIT', 'LAST_ACK']) {
    expect(parseConnection(`tcp      6 431999 ${state} ${ends} [ASSURED] mark=0 use=1`)).toEqual(connection)
  }
  expect(parseConnection(`tcp      6 ESTABLISHED ${ends} [ASSURED] mark=0 use=1`)).toEqual(connection)
  for (const line of [
    `tcp      6 59 SYN_RECV ${ends} mark=0 use=1`,
    `tcp      6 9 TIME_WAIT ${ends} [ASSURED] mark=0 use=1`,
    `udp      17 29 ${ends} [ASSURED] mark=0 use=1`,
    '',
  ]) {
    expect(parseConnection(line)).toBeNull()
  }
})

// Goal: a receiver takes the segment: lengths, flags and the checksum over addresses and segment are right.
test('segments', () => {
  const from = { address: '192.0.2.1', port: 9_442 }
  const to = { address: '192.0.2.9', port: 40_000 }
  const bytes = segment({ from, to, flags: 0x12, numbers: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8) })
  expect(bytes.toHex()).toBe(
    '450000280000000040060000c0000201c0000209' + '24e29c400102030405060708' + '5012ffff5a910000',
  )
  // The sum over the pseudo header and the segment, its checksum included, is all ones.
  const view = new DataView(bytes.buffer)
  let sum = 6 + 20
  for (let at = 12; at < bytes.length; at += 2) sum += view.getUint16(at)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  expect(sum).toBe(0xffff)
})
