// DNS over UDP (RFC 1035 4.2.1): a socket for each address. Effects: sockets, a timer.
//
// A response must come from the address that the query went to. On a wildcard socket the kernel chooses that address
// without regard to the query, so each address of the host gets a socket; the list is renewed regularly.

import { isIPv4 } from 'node:net'
import { networkInterfaces } from 'node:os'
import type { udp } from 'bun'
import { headerBytes } from '../../base/dns/wire.codec.ts'
import { systemErrorCode } from '../../base/fault.ts'

export type UdpLimits = {
  /** Larger queries are dropped. */
  readonly queryBytesMax: number
  /**
   * After both limits, time and packets, timers run; a thread that waited for a processor may have handled few packets.
   * Waiting packets are lost, so this is for floods. DNS over TCP has another thread.
   */
  readonly turnMsMax: number
  readonly turnPacketsMax: number
  /** Maximum number of sockets; further addresses get none. */
  readonly addressesMax: number
  /** Pause between two checks of the host's addresses. */
  readonly addressesIntervalMs: number
}

export type UdpOptions = {
  /** `0.0.0.0` means all IPv4 addresses of the host, `::` those of both families. */
  readonly hostname: string
  /** 0 selects a free port. */
  readonly port: number
  readonly limits: UdpLimits
  /** Returns the response; null for none or not yet, in which case `later` sends it. */
  readonly respond: (query: Uint8Array, address: string, later: (response: Uint8Array) => void) => Uint8Array | null
  /** Addresses of `hostAddresses` to leave to other listeners. */
  readonly except?: readonly string[]
  readonly hostAddresses?: () => readonly string[]
}

/**
 * Returns the addresses of all interfaces that are up. Link-local IPv6 addresses are useless without their interface.
 */
function interfaceAddresses(): readonly string[] {
  const entries = Object.values(networkInterfaces()).flatMap(addresses => addresses ?? [])
  return entries.map(({ address }) => address).filter(address => !/^fe[89ab]/i.test(address))
}

export class UdpListener {
  readonly #options: UdpOptions
  readonly #sockets = new Map<string, udp.Socket<'buffer'>>()
  #timer: ReturnType<typeof setInterval> | null = null
  #port: number
  /** Monotonic time; meaningless without packets. */
  #turnStartedMs = 0
  /** Number of packets in this turn of the event loop. */
  #turnPackets = 0
  #isClosed = false

  private constructor(options: UdpOptions) {
    this.#options = options
    this.#port = options.port
  }

  /** Opens the sockets. Throws if one of the addresses cannot use the port. */
  static async open(options: UdpOptions): Promise<UdpListener> {
    const listener = new UdpListener(options)
    try {
      for (const address of listener.#addresses()) await listener.#open(address)
    } catch (error) {
      listener.close()
      throw error
    }
    if (!listener.#isWildcard) return listener
    listener.#timer = setInterval(() => void listener.#follow(), options.limits.addressesIntervalMs)
    return listener
  }

  get port(): number {
    return this.#port
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) clearInterval(this.#timer)
    for (const socket of this.#sockets.values()) socket.close()
    this.#sockets.clear()
  }

  get #isWildcard(): boolean {
    return this.#options.hostname === '0.0.0.0' || this.#options.hostname === '::'
  }

  #addresses(): readonly string[] {
    const { hostname, limits, except = [], hostAddresses = interfaceAddresses } = this.#options
    if (!this.#isWildcard) return [hostname]
    const addresses = hostAddresses().filter(
      address => (hostname === '::' || isIPv4(address)) && !except.includes(address),
    )
    return [...new Set(addresses)].slice(0, limits.addressesMax)
  }

  /** Opens missing sockets, and closes those of removed addresses. A failed bind is retried later. */
  async #follow(): Promise<void> {
    const addresses = new Set(this.#addresses())
    for (const [address, socket] of this.#sockets) {
      if (addresses.has(address)) continue
      socket.close()
      this.#sockets.delete(address)
    }
    for (const address of addresses) await this.#open(address).catch(() => {})
  }

  async #open(address: string): Promise<void> {
    if (this.#isClosed || this.#sockets.has(address)) return
    const socket = await this.#bind(address)
    if (socket === null) return
    // In the meantime it may have been closed, or opened by another program.
    if (this.#isClosed || this.#sockets.has(address)) return socket.close()
    this.#port = socket.port
    this.#sockets.set(address, socket)
  }

  /**
   * Binds a socket. Null if the host lacks the address, or does not have it yet (duplicate address detection, RFC 4862
   * 5.4).
   */
  async #bind(address: string): Promise<udp.Socket<'buffer'> | null> {
    try {
      return await Bun.udpSocket({
        hostname: address,
        port: this.#port,
        socket: {
          data: (socket, query, port, from) => this.#handle(address, { socket, query, port, from }),
          // An earlier response reached a closed port. Without this handler, that error would end the process.
          error: () => {},
        },
      })
    } catch (error) {
      if (this.#isWildcard && systemErrorCode(error) === 'EADDRNOTAVAIL') return null
      throw error
    }
  }

  #handle(address: string, { socket, query, port, from }: Packet): void {
    if (this.#isTurnOver()) {
      this.#interrupt(address, socket)
      return
    }
    const { limits, respond } = this.#options
    if (query.length < headerBytes || query.length > limits.queryBytesMax) return
    const send = (response: Uint8Array) => this.#send({ socket, port, from }, response)
    const response = respond(query, from, send)
    if (response !== null) send(response)
  }

  #send({ socket, port, from }: Omit<Packet, 'query'>, response: Uint8Array): void {
    try {
      // Not sent if the kernel's buffer is full; the client retries.
      socket.send(response, port, from)
    } catch {
      // An earlier response reached a closed port, or this one has no route (a sender of port 0); any client can cause
      // that. A later response may find its socket closed.
    }
  }

  #isTurnOver(): boolean {
    const { turnMsMax, turnPacketsMax } = this.#options.limits
    if (this.#turnPackets === 0) {
      this.#turnStartedMs = performance.now()
      setImmediate(() => {
        this.#turnPackets = 0
      })
    }
    this.#turnPackets += 1
    return this.#turnPackets > turnPacketsMax && performance.now() - this.#turnStartedMs > turnMsMax
  }

  /**
   * Replaces a socket. The runtime drains a socket before anything else runs on the thread, which never ends during a
   * flood. Closing the socket ends it: buffered packets are lost, and a new socket opens a moment later.
   */
  #interrupt(address: string, socket: udp.Socket<'buffer'>): void {
    socket.close()
    this.#sockets.delete(address)
    setImmediate(() => this.#reopen(address))
  }

  #reopen(address: string): void {
    this.#open(address).catch(() => {
      if (!this.#isClosed) setTimeout(() => this.#reopen(address), reopenPauseMs)
    })
  }
}

const reopenPauseMs = 100

type Packet = {
  readonly socket: udp.Socket<'buffer'>
  readonly query: Buffer
  readonly port: number
  readonly from: string
}
