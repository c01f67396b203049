// A listener for DNS over UDP or TCP. Effects: sockets. The handler interprets the bytes.

import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { listenTcp, type TcpLimits, type TcpOptions } from './dns-tcp.ts'
import { type UdpLimits, UdpListener } from './dns-udp.ts'

export type DnsTransport = 'udp' | 'tcp'

export type DnsSender = { readonly transport: DnsTransport; readonly address: string }

export type DnsSocketOptions = {
  readonly transport: DnsTransport
  readonly address: string
  /** 0 selects a free port. */
  readonly port: number
  /** UDP: addresses of this host with another listener. */
  readonly except?: readonly string[]
  /** Returns the response, small enough for UDP, or null for none. Must be quick, because it blocks its thread. */
  readonly handler: (query: Uint8Array, from: DnsSender) => Uint8Array | null
  readonly log: Logger
  readonly limits?: Partial<DnsLimits>
}

export type DnsLimits = UdpLimits & TcpLimits

export type DnsSocket = { readonly port: number; readonly close: () => void }

export const dnsLimits: DnsLimits = {
  queryBytesMax: 4_096,
  turnMsMax: 5_000,
  /** No share: limits one turn of the event loop. */
  turnPacketsMax: 512,
  /** No share: addresses of this host. */
  addressesMax: 64,
  addressesIntervalMs: 5_000,
  /**
   * Share: `connectionsPerNetworkMax` for one network; the connection idle for longest is closed.
   */
  connectionsMax: 128,
  /** Share: this limit is the share of one network. */
  connectionsPerNetworkMax: 8,
  networkOf: address => address,
  /** No share: limits one connection. */
  queriesPerConnectionMax: 256,
  idleTimeoutMs: 5_000,
}

/** Starts listening. Throws Fault host.unsupported if the address or port is unavailable. */
export async function listenDns(options: DnsSocketOptions): Promise<DnsSocket> {
  const { transport, address: hostname, port } = options
  const listen = { hostname, port, limits: { ...dnsLimits, ...options.limits }, respond: createResponder(options) }
  try {
    if (transport === 'udp') return await UdpListener.open({ ...listen, except: options.except ?? [] })
    const listener = listenTcp(listen)
    return { port: listener.port, close: () => listener.stop(true) }
  } catch (error) {
    throw refused(options, error)
  }
}

function refused({ transport, address, port }: DnsSocketOptions, error: unknown): Fault {
  return new Fault('host.unsupported', `listen for DNS on ${address} port ${port}, ${transport}: ${messageOf(error)}`, {
    cause: error,
  })
}

/** Catches errors, so that a handler that throws does not end the listener. */
function createResponder({ transport, handler, log }: DnsSocketOptions): TcpOptions['respond'] {
  let failures = 0
  return (query, address) => {
    try {
      return handler(query, { transport, address })
    } catch (error) {
      failures += 1
      // Logs the 1st, 10th, 100th, … failure only, because anyone may send queries.
      if (Number.isInteger(Math.log10(failures))) log.error('DNS handler failed', { failures, error })
      return null
    }
  }
}
