// UDP and TCP listeners for DNS (RFC 1035 section 4.2, RFC 7766). Effects: two sockets on one port. The handler knows what the bytes mean.

import type { Socket } from 'bun'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'

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

export type DnsLimits = {
  /** Larger queries are dropped; over TCP the connection is closed too. */
  readonly queryBytesMax: number
  /** When all places are taken, a new connection takes the one that has been idle longest (RFC 7766 6.2.3). */
  readonly connectionsMax: number
  /** Of one network: `networkOf`. */
  readonly connectionsPerNetworkMax: number
  readonly networkOf: (address: string) => string
  readonly queriesPerConnectionMax: number
  /** A TCP connection without a whole new query for this long is closed. */
  readonly idleTimeoutMs: number
}

export type DnsSocket = { readonly port: number; readonly close: () => void }

const defaultLimits: DnsLimits = {
  queryBytesMax: 4_096,
  connectionsMax: 128,
  connectionsPerNetworkMax: 8,
  networkOf: address => address,
  queriesPerConnectionMax: 256,
  idleTimeoutMs: 5_000,
}

/** Listens on both transports. Fault host.unsupported when the address or port cannot be had. */
export async function listenDns(options: DnsSocketOptions): Promise<DnsSocket> {
  const limits = { ...defaultLimits, ...options.limits }
  const respond = createResponder(options)
  // With port 0 the kernel chooses a free UDP port, which may be taken on TCP: try another.
  for (let attempt = 1; ; attempt += 1) {
    const udp = await listenUdp(options, limits, respond)
    try {
      const tcp = listenTcp(options.address, udp.port, limits, respond)
      return {
        port: udp.port,
        close: () => {
          udp.close()
          tcp.stop(true)
        },
      }
    } catch (error) {
      udp.close()
      if (options.port !== 0 || attempt >= attemptCountMax) throw refused(options, error)
    }
  }
}

const attemptCountMax = 8

function refused({ address, port }: DnsSocketOptions, error: unknown): Fault {
  return new Fault('host.unsupported', `listen for DNS on ${address} port ${port}: ${messageOf(error)}`, {
    cause: error,
  })
}

type Responder = DnsSocketOptions['handler']

/** A handler that throws must not end the listener. */
function createResponder({ handler, log }: DnsSocketOptions): Responder {
  let failures = 0
  return (query, from) => {
    try {
      return handler(query, from)
    } catch (error) {
      failures += 1
      // The 1st, 10th, 100th, …: anyone may send queries, so there is no log line for each.
      if (Number.isInteger(Math.log10(failures))) log.error('DNS handler failed', { failures, error })
      return null
    }
  }
}

async function listenUdp(options: DnsSocketOptions, limits: DnsLimits, respond: Responder) {
  try {
    return await Bun.udpSocket({
      hostname: options.address,
      port: options.port,
      socket: {
        data: (socket, query, port, address) => {
          if (query.length < headerBytes || query.length > limits.queryBytesMax) return
          const response = respond(query, { transport: 'udp', address })
          if (response === null) return
          try {
            // Not sent when the kernel's buffer is full: the client asks again.
            socket.send(response, port, address)
          } catch {
            // Says that an earlier response came to a closed port, or that this one has no way (a sender of port 0): anyone can bring that about.
          }
        },
        // The same, when it is not a send that meets it. Without this the error goes to the process, which would end.
        error: () => {},
      },
    })
  } catch (error) {
    throw refused(options, error)
  }
}

const headerBytes = 12
const lengthBytes = 2

type Connection = {
  readonly address: string
  readonly network: string
  held: Uint8Array
  outgoing: Uint8Array
  queries: number
  timer: ReturnType<typeof setTimeout>
}
type TcpSocket = Socket<Connection | undefined>

function listenTcp(hostname: string, port: number, limits: DnsLimits, respond: Responder) {
  const places = createPlaces(limits)
  const idle = (socket: TcpSocket) => setTimeout(() => socket.terminate(), limits.idleTimeoutMs)
  const send = (socket: TcpSocket, connection: Connection) => {
    if (connection.outgoing.length === 0) return
    const written = socket.write(connection.outgoing)
    if (written > 0) connection.outgoing = connection.outgoing.subarray(written)
  }
  /** Responds to whole queries until a response does not go out at once: a client that does not read gets no more. */
  const serve = (socket: TcpSocket, connection: Connection) => {
    while (connection.outgoing.length === 0 && connection.held.length >= lengthBytes) {
      const { held, address } = connection
      const sizeBytes = ((held[0] ?? 0) << 8) | (held[1] ?? 0)
      if (sizeBytes < headerBytes || sizeBytes > limits.queryBytesMax) return void socket.terminate()
      if (held.length < lengthBytes + sizeBytes) return
      connection.held = held.subarray(lengthBytes + sizeBytes)
      connection.queries += 1
      clearTimeout(connection.timer)
      connection.timer = idle(socket)
      places.use(socket)
      const query = held.subarray(lengthBytes, lengthBytes + sizeBytes)
      const response = respond(query, { transport: 'tcp', address })
      if (response === null || response.length > 0xffff) return void socket.terminate()
      connection.outgoing = Buffer.concat([Uint8Array.of(response.length >> 8, response.length & 0xff), response])
      send(socket, connection)
      if (connection.queries >= limits.queriesPerConnectionMax) return void socket.end()
    }
  }
  return Bun.listen<Connection | undefined>({
    hostname,
    port,
    socket: {
      open: socket => {
        const address = socket.remoteAddress
        const network = limits.networkOf(address)
        if (!places.take(socket, network)) return void socket.terminate()
        const nothing = new Uint8Array(0)
        socket.data = { address, network, held: nothing, outgoing: nothing, queries: 0, timer: idle(socket) }
      },
      data: (socket, chunk) => {
        const connection = socket.data
        if (connection === undefined) return
        // An honest client does not send more queries than this ahead of their responses.
        if (connection.held.length + chunk.length > heldQueriesMax * (limits.queryBytesMax + lengthBytes)) {
          return void socket.terminate()
        }
        connection.held = Buffer.concat([connection.held, chunk])
        serve(socket, connection)
      },
      drain: socket => {
        const connection = socket.data
        if (connection === undefined) return
        send(socket, connection)
        serve(socket, connection)
      },
      close: socket => {
        if (socket.data === undefined) return
        clearTimeout(socket.data.timer)
        places.free(socket, socket.data.network)
        socket.data = undefined
      },
      error: socket => void socket.terminate(),
    },
  })
}

/** Who is connected, the longest idle first. */
function createPlaces({ connectionsMax, connectionsPerNetworkMax }: DnsLimits) {
  const taken = new Set<TcpSocket>()
  const perNetwork = new Map<string, number>()
  return {
    /** False: the network has all that it may have. */
    take: (socket: TcpSocket, network: string): boolean => {
      const count = perNetwork.get(network) ?? 0
      if (count >= connectionsPerNetworkMax) return false
      if (taken.size >= connectionsMax) for (const idlest of taken.values().take(1)) idlest.terminate()
      if (taken.size >= connectionsMax) return false
      taken.add(socket)
      perNetwork.set(network, count + 1)
      return true
    },
    /** It has just asked something. */
    use: (socket: TcpSocket): void => {
      if (taken.delete(socket)) taken.add(socket)
    },
    free: (socket: TcpSocket, network: string): void => {
      if (!taken.delete(socket)) return
      const count = (perNetwork.get(network) ?? 1) - 1
      if (count === 0) perNetwork.delete(network)
      else perNetwork.set(network, count)
    },
  }
}

const heldQueriesMax = 16
