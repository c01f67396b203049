// A build VM's only network access, while it fetches: an HTTP CONNECT proxy (RFC 9110 9.3.6) to the operator's list of
// hosts. Effects: sockets.
//
// Listens only while a build may fetch, accepts connections only from such VMs, and logs only host names. It resolves
// the name itself and connects to the address that it checked, so changing the name in between has no effect.

import { lookup } from 'node:dns/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import type { Logger } from '../../base/log.ts'
import type { FetchHost } from '../../config/fetch-hosts.ts'
import { isPublicAddress } from '../../linux/net/public-address.plan.ts'

export type FetchGateOpening = {
  readonly buildId: string
  /** IPv4 address of its VM. */
  readonly address: string
  /** Limit on both directions together. */
  readonly bytesMax: number
}

export type FetchGate = {
  /** Lets a VM connect. No effect if it already may. */
  readonly open: (opening: FetchGateOpening) => void
  /** Closes its connections permanently. No effect if it has none. */
  readonly close: (buildId: string) => void
}

export type FetchProxyDeps = {
  /** Address and port that VMs use. */
  readonly hostname: string
  readonly port: number
  readonly hosts: readonly FetchHost[]
  /** Networks of this host's VMs, as A.B.C.D/N: never reached, whatever address a name resolves to. */
  readonly ownNetworks: readonly string[]
  readonly log: Logger
  /** Default: the system's resolver; tests pass another. */
  readonly resolve?: (host: string) => Promise<readonly string[]>
}

type Visitor = FetchGateOpening & { readonly sockets: Set<Socket>; bytes: number; connections: number }

const headBytesMax = 8_192
const headTimeoutMs = 10_000
const connectTimeoutMs = 15_000
const idleTimeoutMs = 120_000
/** No share: limits one build. */
const socketsMax = 64
/** No share: limits one build. */
const connectionsMax = 16_384
/** Retry interval. The address is on the VM's tap, which may be recreated. */
const listenRetryMs = 1_000

export class FetchProxy implements FetchGate {
  readonly #deps: FetchProxyDeps
  readonly #visitors = new Map<string, Visitor>()
  readonly #ended = new WeakSet<Socket>()
  #server: Server | null = null
  #retry: ReturnType<typeof setTimeout> | undefined

  constructor(deps: FetchProxyDeps) {
    this.#deps = deps
  }

  open(opening: FetchGateOpening): void {
    if (this.#visitors.has(opening.buildId)) return
    this.#visitors.set(opening.buildId, { ...opening, sockets: new Set(), bytes: 0, connections: 0 })
    this.#listen()
  }

  close(buildId: string): void {
    const visitor = this.#visitors.get(buildId)
    if (visitor === undefined) return
    this.#visitors.delete(buildId)
    for (const socket of visitor.sockets) socket.destroy()
    this.#deps.log.info('a build has fetched', {
      build: buildId,
      bytes: visitor.bytes,
      connections: visitor.connections,
    })
    if (this.#visitors.size === 0) this.#stopListening()
  }

  stop(): void {
    for (const buildId of [...this.#visitors.keys()]) this.close(buildId)
    this.#stopListening()
  }

  /** Null if the proxy is not listening. */
  get listening(): { readonly port: number } | null {
    const address = this.#server?.address()
    return typeof address === 'object' && address !== null ? { port: address.port } : null
  }

  #listen(): void {
    if (this.#server !== null) return
    const { hostname, port, log } = this.#deps
    const server = createServer({ allowHalfOpen: true }, socket => this.#take(socket))
    server.maxConnections = socketsMax * 16
    server.on('error', error => {
      log.warn('the fetch proxy cannot listen; retrying', { hostname, port, error })
      if (this.#server !== server) return
      this.#server = null
      this.#retry = setTimeout(() => {
        if (this.#visitors.size > 0) this.#listen()
      }, listenRetryMs)
    })
    server.listen({ host: hostname, port, exclusive: true })
    this.#server = server
  }

  #stopListening(): void {
    clearTimeout(this.#retry)
    this.#server?.close()
    this.#server = null
  }

  #take(socket: Socket): void {
    socket.on('error', () => socket.destroy())
    const from = socket.remoteAddress?.replace(/^::ffff:/, '')
    const visitor = [...this.#visitors.values()].find(({ address }) => address === from)
    if (visitor === undefined || visitor.sockets.size >= socketsMax || visitor.connections >= connectionsMax) {
      socket.destroy()
      return
    }
    visitor.connections += 1
    this.#own(visitor, socket)
    this.#readHead(socket)
      .then(({ head, rest }) => this.#serve(visitor, socket, { head, rest }))
      .catch(() => socket.destroy())
  }

  #own(visitor: Visitor, socket: Socket): void {
    visitor.sockets.add(socket)
    socket.on('close', () => visitor.sockets.delete(socket))
    // Bun 1.4.5 emits `end` for a paused socket with nothing left to read, possibly before the relay listens.
    socket.once('end', () => this.#ended.add(socket))
    socket.setTimeout(idleTimeoutMs, () => socket.destroy())
  }

  /** Reads up to the empty line, and returns any further bytes too. */
  #readHead(socket: Socket): Promise<{ head: string; rest: Buffer }> {
    return new Promise((resolve, reject) => {
      let bytes = Buffer.alloc(0)
      const timer = setTimeout(() => reject(new Error('no request in time')), headTimeoutMs)
      const onData = (chunk: Buffer) => {
        bytes = Buffer.concat([bytes, chunk])
        const end = bytes.indexOf('\r\n\r\n')
        if (end === -1 && bytes.length <= headBytesMax) return
        clearTimeout(timer)
        socket.pause()
        socket.off('data', onData)
        if (end === -1 || end > headBytesMax) reject(new Error('a request that is too long'))
        else resolve({ head: bytes.subarray(0, end).toString('latin1'), rest: bytes.subarray(end + 4) })
      }
      socket.on('data', onData)
      socket.once('close', () => {
        clearTimeout(timer)
        reject(new Error('closed'))
      })
    })
  }

  async #serve(visitor: Visitor, socket: Socket, { head, rest }: { head: string; rest: Buffer }): Promise<void> {
    const { log } = this.#deps
    const line = head.split('\r\n', 1)[0] ?? ''
    const [, host = '', digits = ''] = /^CONNECT ([A-Za-z0-9.-]{1,253}):([0-9]{1,5}) HTTP\/1\.[01]$/.exec(line) ?? []
    if (host === '')
      return refuse(socket, line.startsWith('CONNECT ') ? 400 : 405, 'This proxy serves only CONNECT HOST:PORT.')
    const name = host.toLowerCase().replace(/\.$/, '')
    const shown = { build: visitor.buildId, host: name, port: Number(digits) }
    const listed = this.#deps.hosts.find(host => host.host === name && host.port === Number(digits))
    if (listed === undefined) {
      log.info('a build was refused a host', { ...shown, reason: 'not in builds.fetch_hosts' })
      return refuse(socket, 403, 'This host is not listed in builds.fetch_hosts.')
    }
    const found = await this.#addressOf(listed)
    if (!found.ok) {
      log.info('a build was refused a host', { ...shown, reason: found.reason })
      return refuse(socket, found.status, found.reason)
    }
    if (!this.#visitors.has(visitor.buildId)) return
    log.info('a build fetches', shown)
    this.#connect(visitor, socket, { address: found.address, port: listed.port, rest })
  }

  async #addressOf(host: FetchHost): Promise<AddressLookup> {
    if (host.address !== null) return { ok: true, address: host.address }
    const resolve = this.#deps.resolve ?? systemResolve
    let addresses: readonly string[]
    try {
      addresses = await withDeadline(resolve(host.host), connectTimeoutMs)
    } catch {
      return { ok: false, status: 502, reason: 'The name of this host cannot be resolved.' }
    }
    const own = [...this.#deps.ownNetworks, ...addressesOfThisHost()]
    // A private address among public ones is an attack, because the choice between them is random.
    const isGood = addresses.length > 0 && addresses.every(address => isPublicAddress(address, own))
    const first = addresses.find(address => !address.includes(':')) ?? addresses[0]
    if (!isGood || first === undefined) {
      const reason =
        'The name of this host resolves to an address that is not public; the operator can allow it in builds.fetch_hosts.'
      return { ok: false, status: 403, reason }
    }
    return { ok: true, address: first }
  }

  #connect(visitor: Visitor, socket: Socket, to: { address: string; port: number; rest: Buffer }): void {
    const upstream = connect({ host: to.address, port: to.port, allowHalfOpen: true })
    const timer = setTimeout(() => upstream.destroy(new Error('no connection in time')), connectTimeoutMs)
    this.#own(visitor, upstream)
    let isConnected = false
    upstream.on('error', () => {
      if (!isConnected && !socket.destroyed) refuse(socket, 502, 'This host cannot be reached.')
      else socket.destroy()
    })
    upstream.once('close', () => {
      clearTimeout(timer)
      if (isConnected) socket.destroy()
    })
    socket.once('close', () => upstream.destroy())
    upstream.once('connect', () => {
      isConnected = true
      clearTimeout(timer)
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
      if (to.rest.length > 0 && this.#count(visitor, to.rest.length)) upstream.write(to.rest)
      this.#relay(visitor, socket, upstream)
      this.#relay(visitor, upstream, socket)
    })
  }

  /** Relays at the speed at which the other side reads. */
  #relay(visitor: Visitor, from: Socket, to: Socket): void {
    from.on('data', chunk => {
      if (!this.#count(visitor, chunk.length)) return
      if (!to.write(chunk)) {
        from.pause()
        to.once('drain', () => from.resume())
      }
    })
    if (this.#ended.has(from)) to.end()
    else from.once('end', () => to.end())
    from.resume()
  }

  /** Counts bytes. Returns false if the limit is reached and the connections are closed. */
  #count(visitor: Visitor, bytes: number): boolean {
    visitor.bytes += bytes
    if (visitor.bytes <= visitor.bytesMax) return true
    this.#deps.log.warn('a build has reached its fetch limit', { build: visitor.buildId, bytesMax: visitor.bytesMax })
    for (const socket of visitor.sockets) socket.destroy()
    // Makes the limit of connections count as reached for this build.
    visitor.connections = connectionsMax
    return false
  }
}

type AddressLookup =
  | { readonly ok: true; readonly address: string }
  | { readonly ok: false; readonly status: 403 | 502; readonly reason: string }

const REASONS = { 400: 'Bad Request', 403: 'Forbidden', 405: 'Method Not Allowed', 502: 'Bad Gateway' } as const

function refuse(socket: Socket, status: keyof typeof REASONS, message: string): void {
  const text = `${message}\n`
  const head = [`HTTP/1.1 ${status} ${REASONS[status]}`, 'Content-Type: text/plain', `Content-Length: ${text.length}`]
  socket.end(`${[...head, 'Connection: close'].join('\r\n')}\r\n\r\n${text}`)
  // Read the rest of the request, to its end or the timeout, because a reset would lose the response.
  socket.resume()
}

async function systemResolve(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address)
}

function addressesOfThisHost(): string[] {
  return Object.values(networkInterfaces()).flatMap(list =>
    (list ?? []).map(({ address }) => address.replace(/%.*$/, '')),
  )
}

async function withDeadline<T>(work: Promise<T>, ms: number): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error('late')), ms)
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
