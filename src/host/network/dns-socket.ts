// UDP and TCP listeners for DNS on one port. Effects: sockets. The handler knows what the bytes mean.

import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { listenTcp, type TcpLimits } from './dns-tcp.ts'
import { type UdpLimits, UdpListener } from './dns-udp.ts'

export type DnsTransport = 'udp' | 'tcp'

export type DnsSender = { readonly transport: DnsTransport; readonly address: string }

export type DnsSocketOptions = {
  readonly address: string
  /** 0 takes a free one. */
  readonly port: number
  /** Returns the response, or null for none. Must be quick: nothing else of its thread runs meanwhile. It also keeps UDP responses small enough. */
  readonly handler: (query: Uint8Array, from: DnsSender) => Uint8Array | null
  readonly log: Logger
  readonly limits?: Partial<DnsLimits>
}

export type DnsLimits = UdpLimits & TcpLimits

export type DnsSocket = { readonly port: number; readonly close: () => void }

const defaultLimits: DnsLimits = {
  queryBytesMax: 4_096,
  turnMsMax: 20,
  turnPacketsMax: 512,
  addressesMax: 64,
  addressesIntervalMs: 5_000,
  connectionsMax: 128,
  connectionsPerNetworkMax: 8,
  networkOf: address => address,
  queriesPerConnectionMax: 256,
  idleTimeoutMs: 5_000,
}

/** Listens on both transports. Fault host.unsupported when the address or port cannot be had. */
export async function listenDns(options: DnsSocketOptions): Promise<DnsSocket> {
  const { address: hostname } = options
  const limits = { ...defaultLimits, ...options.limits }
  const respond = createResponder(options)
  // With port 0 the kernel chooses a free UDP port, which may be taken on another address or on TCP: try another.
  for (let attempt = 1; ; attempt += 1) {
    let udp: UdpListener | null = null
    try {
      udp = await UdpListener.open({ hostname, port: options.port, limits, respond: respond('udp') })
      const tcp = listenTcp({ hostname, port: udp.port, limits, respond: respond('tcp') })
      return { port: udp.port, close: closing(udp, tcp) }
    } catch (error) {
      udp?.close()
      if (options.port !== 0 || attempt >= attemptCountMax) throw refused(options, error)
    }
  }
}

const attemptCountMax = 8

function closing(udp: UdpListener, tcp: ReturnType<typeof listenTcp>): () => void {
  return () => {
    udp.close()
    tcp.stop(true)
  }
}

function refused({ address, port }: DnsSocketOptions, error: unknown): Fault {
  return new Fault('host.unsupported', `listen for DNS on ${address} port ${port}: ${messageOf(error)}`, {
    cause: error,
  })
}

type Respond = (query: Uint8Array, address: string) => Uint8Array | null

/** A handler that throws must not end the listener. */
function createResponder({ handler, log }: DnsSocketOptions): (transport: DnsTransport) => Respond {
  let failures = 0
  return transport => (query, address) => {
    try {
      return handler(query, { transport, address })
    } catch (error) {
      failures += 1
      // The 1st, 10th, 100th, …: anyone may send queries, so there is no log line for each.
      if (Number.isInteger(Math.log10(failures))) log.error('DNS handler failed', { failures, error })
      return null
    }
  }
}
