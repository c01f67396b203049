// The one resolver that programs of the VM reach. Effects: one UDP socket.
//
// An allowed name has a synthetic address, which leads to the broker. No question is forwarded, so none carries data
// out of the VM. The exception is the one fixed name of the inference gateway, whose true addresses it gives.

import { createSocket, type Socket } from 'node:dgram'
import { formatIpv4, parseIpv4 } from '../base/ipv4.ts'
import { parseIpv6 } from '../base/ipv6.ts'
import type { Logger } from '../base/log.ts'
import { CLASS_IN, type DnsQuery, type DnsReply, RCODE, readQuery, TYPE, writeReply } from './question.codec.ts'
import type { EgressLog } from './types.ts'

/** Questions for the gateway's name that are under way; more get no answer. Share: programs of one VM ask again. */
const gatewayQuestionsMax = 32

export type ResolverDeps = {
  readonly addressOf: (name: string) => string | null
  /** The gateway's name, or null. */
  readonly gateway: () => string | null
  readonly trueAddresses: (name: string, type: 'A' | 'AAAA') => Promise<readonly string[]>
  readonly egressLog: EgressLog
  readonly log: Logger
}

/** Rejects if the address or port is unavailable. */
export function serveResolver(
  { address, port }: { readonly address: string; readonly port: number },
  deps: ResolverDeps,
): Promise<Socket> {
  const socket = createSocket('udp4')
  let gatewayQuestions = 0
  const answer = async (bytes: Buffer, from: { readonly address: string; readonly port: number }) => {
    const query = readQuery(bytes)
    if (query === null) return
    let reply = replyOf(query, deps)
    if (reply === 'gateway') {
      if (gatewayQuestions >= gatewayQuestionsMax) return
      gatewayQuestions += 1
      reply = await gatewayReply(query, deps).finally(() => {
        gatewayQuestions -= 1
      })
    }
    socket.send(writeReply(query, reply), from.port, from.address)
  }
  socket.on('message', (bytes, from) => {
    answer(Buffer.from(bytes), from).catch(error => deps.log.error('a question has no answer', { error }))
  })
  return new Promise((resolve, reject) => {
    socket.once('error', reject)
    socket.bind(port, address, () => {
      socket.on('error', error => deps.log.error('resolver', { error }))
      resolve(socket)
    })
  })
}

const nothing = { rcode: RCODE.ok, addresses: [], extendedError: null } as const
/** RFC 8914 4.16: an administrator blocked the name. */
const blocked = 15

function replyOf(query: DnsQuery, { addressOf, gateway, egressLog }: ResolverDeps): DnsReply | 'gateway' {
  const { name, type } = query
  if (query.class !== CLASS_IN) return { ...nothing, rcode: RCODE.notImplemented }
  if (name === 'localhost') return type === TYPE.A ? { ...nothing, addresses: [Uint8Array.of(127, 0, 0, 1)] } : nothing
  const address = addressOf(name)
  if (address !== null) return type === TYPE.A ? { ...nothing, addresses: [v4Bytes(address)] } : nothing
  if (name === gateway()) return 'gateway'
  egressLog.add({ verdict: 'refused', host: printable(name), port: 0, reason: 'the policy does not list this name' })
  return { ...nothing, rcode: RCODE.nameError, extendedError: blocked }
}

async function gatewayReply({ name, type }: DnsQuery, { trueAddresses }: ResolverDeps): Promise<DnsReply> {
  if (type !== TYPE.A && type !== TYPE.AAAA) return nothing
  try {
    const addresses = await trueAddresses(name, type === TYPE.A ? 'A' : 'AAAA')
    return { ...nothing, addresses: addresses.map(type === TYPE.A ? v4Bytes : v6Bytes) }
  } catch {
    return { ...nothing, rcode: RCODE.serverFailure }
  }
}

function v4Bytes(address: string): Uint8Array {
  return Uint8Array.from(formatIpv4(parseIpv4(address)).split('.').map(Number))
}

function v6Bytes(address: string): Uint8Array {
  return Uint8Array.fromHex(parseIpv6(address).toString(16).padStart(32, '0'))
}

/** For the log: other bytes than those of host names are shown as `?`. */
export function printable(name: string): string {
  return name.replace(/[^a-z0-9._*-]/g, '?')
}
