// Sends one DNS question over UDP (RFC 1035). Effects: one socket, closed afterwards; reads /etc/resolv.conf.

import { createSocket } from 'node:dgram'
import { readFileSync } from 'node:fs'
import { isIP, isIPv6 } from 'node:net'
import { type DnsAnswer, decodeAnswer, encodeQuestion } from '../../base/dns/answer.codec.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { type RandomBytes, systemRandom } from '../../base/ids.ts'
import { resultOr } from '../../base/result-or.ts'

export type DnsQuestion = {
  readonly server: string
  readonly port: number
  readonly name: string
  readonly type: 'A' | 'AAAA' | 'NS'
  /** Whether the server should recurse. */
  readonly recursion: boolean
  readonly timeoutMs: number
  /** Longer answers are ignored. Default: no limit. */
  readonly answerBytesMax?: number
}

/**
 * Sends the question. Faults: host.command_timeout (no answer in time), host.command_failed (no server, or an
 * unreadable answer).
 */
export async function askDns(question: DnsQuestion, random: RandomBytes = systemRandom): Promise<DnsAnswer> {
  const { server, port, name, type, recursion, timeoutMs, answerBytesMax = datagramBytesMax } = question
  const [high = 0, low = 0] = random(2)
  const query = encodeQuestion({ id: high * 256 + low, name, type, recursion })
  const socket = createSocket(isIPv6(server) ? 'udp6' : 'udp4')
  const failed = (why: unknown) => new Fault('host.command_failed', `DNS server ${server}: ${messageOf(why)}`)
  let timer: ReturnType<typeof setTimeout> | undefined
  try {
    return await new Promise<DnsAnswer>((resolve, reject) => {
      timer = setTimeout(
        () => reject(new Fault('host.command_timeout', `DNS server ${server} has not answered within ${timeoutMs} ms`)),
        timeoutMs,
      )
      socket.on('error', error => reject(failed(error)))
      socket.on('message', bytes => {
        const read = readAnswer(bytes, query, answerBytesMax)
        if (read === 'other') return
        if (typeof read === 'string') reject(failed(read))
        else resolve(read)
      })
      // A connected socket receives only datagrams of this server.
      socket.connect(port, server, () => socket.send(query))
    })
  } finally {
    clearTimeout(timer)
    socket.close()
  }
}

const datagramBytesMax = 65_535

/** Decodes an answer. `other`: it belongs to another question. Any other text: why it cannot be read. */
function readAnswer(datagram: Uint8Array, query: Buffer, answerBytesMax: number): DnsAnswer | string {
  const answer = decodeAnswer(datagram, query)
  if (answer === 'other') return answer
  if (datagram.length > answerBytesMax) return `its answer has ${datagram.length} bytes, more than requested`
  return answer ?? 'its answer is malformed'
}

/** Returns the addresses of resolv.conf(5), at most three; empty if there is no file. Never throws. */
export function systemResolvers(file = '/etc/resolv.conf'): string[] {
  return resultOr(() => parseResolvers(readFileSync(file, 'utf8')), [])
}

export function parseResolvers(text: string): string[] {
  const found = [...text.matchAll(/^nameserver\s+(\S+)/gm)].map(([, address = '']) => address)
  return found.filter(address => isIP(address) !== 0).slice(0, 3)
}
