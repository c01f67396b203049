// DNS over TCP (RFC 1035 4.2.2, RFC 7766): length-prefixed messages, several per connection. Effects: a listening
// socket.

import type { Socket } from 'bun'
import { headerBytes } from '../../base/dns/wire.codec.ts'

export type TcpLimits = {
  /** Larger queries close the connection. */
  readonly queryBytesMax: number
  /** When all slots are taken, a new connection replaces the one that has been idle longest (RFC 7766 6.2.3). */
  readonly connectionsMax: number
  /** Limit for one network, as `networkOf` counts. */
  readonly connectionsPerNetworkMax: number
  readonly networkOf: (address: string) => string
  readonly queriesPerConnectionMax: number
  /** A connection without a complete new query for this long is closed. */
  readonly idleTimeoutMs: number
}

export type TcpOptions = {
  readonly hostname: string
  readonly port: number
  readonly limits: TcpLimits
  /** Returns the response; null for none, which also ends the connection. */
  readonly respond: (query: Uint8Array, address: string) => Uint8Array | null
}

const lengthBytes = 2
/**
 * An honest client does not send more queries than this before it has read their responses, even the longest. No share:
 * limits one connection.
 */
const heldQueriesMax = 16

type Connection = {
  readonly address: string
  readonly network: string
  held: Uint8Array
  outgoing: Uint8Array
  queries: number
  timer: ReturnType<typeof setTimeout>
}
type TcpSocket = Socket<Connection | undefined>

/** Starts listening. Throws if the port is unavailable. */
export function listenTcp({ hostname, port, limits, respond }: TcpOptions) {
  const places = createPlaces(limits)
  const idle = (socket: TcpSocket) => setTimeout(() => socket.terminate(), limits.idleTimeoutMs)
  const send = (socket: TcpSocket, connection: Connection) => {
    if (connection.outgoing.length === 0) return
    const written = socket.write(connection.outgoing)
    if (written > 0) connection.outgoing = connection.outgoing.subarray(written)
  }
  /**
   * Answers complete queries until a response cannot be sent at once, because a client that does not read gets no more.
   */
  const serve = (socket: TcpSocket, connection: Connection) => {
    while (connection.outgoing.length === 0) {
      if (connection.queries >= limits.queriesPerConnectionMax) return void socket.end()

      const { held, address } = connection
      if (held.length < lengthBytes) return
      const sizeBytes = ((held[0] ?? 0) << 8) | (held[1] ?? 0)
      if (sizeBytes < headerBytes || sizeBytes > limits.queryBytesMax) return void socket.terminate()
      if (held.length < lengthBytes + sizeBytes) return
      connection.held = held.subarray(lengthBytes + sizeBytes)
      connection.queries += 1
      clearTimeout(connection.timer)
      connection.timer = idle(socket)
      places.use(socket)
      const query = held.subarray(lengthBytes, lengthBytes + sizeBytes)
      const response = respond(query, address)
      if (response === null || response.length > 0xffff) return void socket.end()
      connection.outgoing = Buffer.concat([Uint8Array.of(response.length >> 8, response.length & 0xff), response])
      send(socket, connection)
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

/** Open connections, the longest idle first. */
function createPlaces({ connectionsMax, connectionsPerNetworkMax }: TcpLimits) {
  const taken = new Set<TcpSocket>()
  const perNetwork = new Map<string, number>()
  return {
    /** Returns false if the network is at its limit. */
    take: (socket: TcpSocket, network: string): boolean => {
      const count = perNetwork.get(network) ?? 0
      if (count >= connectionsPerNetworkMax) return false
      if (taken.size >= connectionsMax) for (const idlest of taken.values().take(1)) idlest.terminate()
      if (taken.size >= connectionsMax) return false
      taken.add(socket)
      perNetwork.set(network, count + 1)
      return true
    },
    /** Marks the connection as just used. */
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
