// DNS queries as clients send them.

import { connect } from 'node:net'
import { type Answer, decode, encode, type RecordType } from 'dns-packet'
import { until } from '../../../scripts/rigs/until.ts'

const tcpTimeoutMs = 10_000

/** A name of an instance in the zone `agents.example`. */
export const HOST = 'abcd2345.acme.agents.example'

export type QueryParts = {
  name?: string
  type?: string
  id?: number
  flags?: number
  class?: string
  edns?: { size?: number; version?: number; flags?: number; count?: number }
}

export function query({ name = HOST, type = 'A', id = 7, flags = 0x0100, edns, ...rest }: QueryParts): Buffer {
  const option = edns && {
    type: 'OPT' as const,
    name: '.',
    udpPayloadSize: edns.size ?? 1232,
    extendedRcode: 0,
    ednsVersion: edns.version ?? 0,
    flags: edns.flags ?? 0,
    flag_do: false,
    options: [],
  }
  const additionals: Answer[] = option === undefined ? [] : Array.from({ length: edns?.count ?? 1 }, () => option)
  const packet = encode({
    type: 'query',
    id,
    flags,
    questions: [{ name, type: type as RecordType, class: (rest.class ?? 'IN') as 'IN' }],
    additionals,
  })
  return packet
}

/** Asks over a TCP connection of its own, from this address of the loopback; the number of answers. */
export async function askOverTcp(port: number, name = HOST, localAddress = '127.0.0.1'): Promise<number> {
  const message = query({ name })
  const socket = connect({ host: '127.0.0.1', port, localAddress })
  try {
    let received = Buffer.alloc(0)
    // A refused connection has no answer, which is what is waited for.
    socket.on('error', () => {})
    socket.on('data', chunk => {
      received = Buffer.concat([received, chunk])
    })
    socket.write(Buffer.concat([Uint8Array.of(0, message.length), message]))
    const isWhole = () => received.length > 2 && received.length >= 2 + received.readUInt16BE(0)
    await until('an answer over TCP', tcpTimeoutMs, isWhole)
    return decode(received.subarray(2)).answers?.length ?? 0
  } finally {
    socket.destroy()
  }
}
