// Connections of the broker to the true addresses of an allowed name. Effects: DNS, TCP.
//
// The broker resolves a name itself for each connection, and connects to an address that it has checked: a name that
// leads to a private address leads nowhere.

import { connect, type Socket } from 'node:net'
import { addressesOf } from '../base/dns/addresses.plan.ts'
import { messageOf } from '../base/fault.ts'
import type { BrokerState } from '../contract/vm/orders/broker-state.ts'
import { askDns } from '../linux/net/dns-ask.ts'
import { isPublicAddress } from '../linux/net/public-address.plan.ts'

type UpstreamState = Pick<BrokerState, 'resolvers' | 'v4' | 'v6'>

const dnsTimeoutMs = 3_000
const connectTimeoutMs = 10_000
const keepAliveMs = 60_000
/** Addresses that are tried. No share: limits one connection. */
const addressesTriedMax = 4

/** Rejects with a sentence for the log. */
export async function openUpstream(state: UpstreamState, host: string, port: number): Promise<Socket> {
  const types = [...(state.v4 ? (['A'] as const) : []), ...(state.v6 ? (['AAAA'] as const) : [])]
  const found = await Promise.allSettled(types.map(type => resolveName(state, host, type)))
  const addresses = found.flatMap(result => (result.status === 'fulfilled' ? result.value : []))
  const failure = found.find(result => result.status === 'rejected')
  if (addresses.length === 0)
    throw new Error(failure === undefined ? 'the name has no address' : messageOf(failure.reason))
  const open = addresses.filter(address => isPublicAddress(address, []))
  if (open.length === 0) throw new Error('the name leads to a private address')
  let last: unknown = null
  for (const address of open.slice(0, addressesTriedMax)) {
    try {
      return await connectTo(address, port)
    } catch (error) {
      last = error
    }
  }
  throw new Error(`no connection to ${open[0]}: ${messageOf(last)}`)
}

/** Queries the claim's resolvers, one after the other. Rejects if none answers. */
export async function resolveName(
  { resolvers }: Pick<UpstreamState, 'resolvers'>,
  name: string,
  type: 'A' | 'AAAA',
): Promise<readonly string[]> {
  let failure = 'this instance has no name server'
  for (const server of resolvers) {
    try {
      const answer = await askDns({ server, port: 53, name, type, recursion: true, timeoutMs: dnsTimeoutMs })
      if (answer.code === 'NXDOMAIN') return []
      if (answer.code === 'NOERROR') return addressesOf(answer.answers, { name, type })?.addresses ?? []
      failure = `the name server ${server} answers ${answer.code}`
    } catch (error) {
      failure = messageOf(error)
    }
  }
  throw new Error(failure)
}

function connectTo(address: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, allowHalfOpen: true })
    const timer = setTimeout(() => fail(new Error(`not within ${connectTimeoutMs / 1000} s`)), connectTimeoutMs)
    const fail = (error: Error) => {
      clearTimeout(timer)
      socket.destroy()
      reject(error)
    }
    socket.once('error', fail)
    socket.once('connect', () => {
      clearTimeout(timer)
      socket.off('error', fail)
      socket.setKeepAlive(true, keepAliveMs)
      resolve(socket)
    })
  })
}
