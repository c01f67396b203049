// One connection to an upstream, for one request after the other. Effects: a socket.
//
// Why not fetch: it takes twice the time and memory for each request, resolves only on a thread of its own, has no limit for connecting alone,
// and its failures name addresses.

import type { Socket, SocketHandler } from 'bun'
import { assert } from '../../base/assert.ts'
import type { Deadlines } from '../../base/deadlines.ts'
import { UpstreamFault } from './fault.ts'
import { createResponseParser, type ResponseHead } from './http1-response.ts'
import { type Endpoint, isPinned } from './target.ts'

export type UpstreamAnswer = {
  readonly head: ResponseHead
  /** What has come since the last call, or comes next; null at the end. UpstreamFault cut or malformed. One call at a time. */
  readonly read: () => Promise<Uint8Array | null>
  /** Gives up what has not come yet; of an answer that is complete nothing is left to give up. */
  readonly abort: () => void
}

export type Connection = {
  /** Sends a request; the head of its answer. UpstreamFault: unreachable when not a byte came back, cut or malformed. */
  readonly ask: (request: Buffer) => Promise<UpstreamAnswer>
  readonly close: () => void
}

export type ConnectionDeps = {
  readonly deadlines: Deadlines
  readonly connectTimeoutMs: number
  /** An answer has ended and another request may go out. Not called again before the next one has. */
  readonly onIdle: (connection: Connection) => void
  readonly onClose: (connection: Connection) => void
}

/** So much of an answer waits for its reader; then the upstream has to. */
const waitingBytesMax = 65_536
/** Bun counts in steps of four: four to eight. About as long as servers keep their side open; one that has just closed costs another connection. */
const idleSeconds = 8

export type Dial = {
  /** UpstreamFault unreachable: also when the certificate is not the right one. Not a byte is sent before that is known. */
  readonly opened: Promise<Connection>
  /** Gives it up, or closes what it has opened. */
  readonly stop: () => void
}

export function connect(endpoint: Endpoint, deps: ConnectionDeps): Dial {
  const opened = Promise.withResolvers<Connection>()
  let isGivenUp = false
  let wire: Wire | null = null
  let dialling: Socket<undefined> | null = null
  const refuse = (socket: Socket<undefined>) => {
    opened.reject(new UpstreamFault('unreachable'))
    socket.terminate()
  }
  const accept = (socket: Socket<undefined>) => {
    if (isGivenUp) return socket.terminate()
    wire = createWire(socket, deps)
    opened.resolve(wire.connection)
  }
  const stop = () => {
    isGivenUp = true
    opened.reject(new UpstreamFault('unreachable'))
    if (wire === null) dialling?.terminate()
    else wire.connection.close()
  }
  const inTime = deps.deadlines.after(deps.connectTimeoutMs, stop)
  const handlers: SocketHandler<undefined> = {
    open: socket => {
      dialling = socket
      if (endpoint.tls === null || isGivenUp) accept(socket)
    },
    handshake: (socket, isDone, error) => {
      if (endpoint.tls === null) return
      if (isDone && error === null && isPinned(endpoint.spkiSha256, certificateOf(socket))) accept(socket)
      else refuse(socket)
    },
    data: (socket, bytes) => (wire === null ? refuse(socket) : wire.onData(bytes)),
    drain: () => wire?.onDrain(),
    timeout: () => wire?.onIdleTimeout(),
    error: socket => (wire === null ? refuse(socket) : wire.onClose(true)),
    close: (socket, error) => (wire === null ? refuse(socket) : wire.onClose(error !== undefined)),
  }
  const tls = endpoint.tls === null ? {} : { tls: endpoint.tls }
  const dialled =
    'unix' in endpoint.address
      ? Bun.connect({ ...endpoint.address, socket: handlers })
      : Bun.connect({ ...endpoint.address, ...tls, socket: handlers })
  dialled.catch(() => opened.reject(new UpstreamFault('unreachable')))
  return { opened: opened.promise.finally(inTime), stop }
}

function certificateOf(socket: Socket<undefined>): unknown {
  const certificate: unknown = Reflect.get(socket, 'getPeerCertificate')?.call(socket)
  return Reflect.get(Object(certificate), 'raw')
}

/** What a socket calls. */
type Wire = {
  readonly connection: Connection
  readonly onData: (bytes: Buffer) => void
  readonly onDrain: () => void
  readonly onIdleTimeout: () => void
  /** `isReset`: not by the peer's own will, so no end of a body. */
  readonly onClose: (isReset: boolean) => void
}

function createWire(socket: Socket<undefined>, deps: ConnectionDeps): Wire {
  let exchange: Exchange | null = null
  let unsent: Buffer | null = null
  let isOpen = true

  const parser = createResponseParser({
    onHead: head => exchange?.begin(head),
    onBody: bytes => exchange?.take(bytes),
    onEnd: isReusable => {
      exchange?.end()
      exchange = null
      // An answer before the whole request has gone out: what is left of it would look like the next one.
      if (!isReusable || unsent !== null) return close()
      socket.timeout(idleSeconds)
      deps.onIdle(connection)
    },
  })

  const fail = (error: unknown) => {
    if (!isOpen) return
    isOpen = false
    socket.terminate()
    deps.onClose(connection)
    const failed = exchange
    exchange = null
    failed?.fail(error)
  }
  const close = () => fail(new UpstreamFault('cut'))
  const send = (bytes: Buffer) => {
    const sent = socket.write(bytes)
    // Closed already, though nobody has told us yet.
    if (sent < 0) return fail(new UpstreamFault('unreachable'))
    unsent = sent < bytes.length ? bytes.subarray(sent) : null
  }

  const connection: Connection = {
    ask: request => {
      assert(exchange === null, 'a connection carries one request at a time')
      if (!isOpen) return Promise.reject(new UpstreamFault('unreachable'))
      const own = createExchange(socket, () => {
        if (exchange === own) close()
      })
      exchange = own
      socket.timeout(0)
      parser.expect()
      send(request)
      return own.answered
    },
    close,
  }
  return {
    connection,
    onData: bytes => {
      if (!isOpen) return
      exchange?.noteBytes()
      try {
        parser.push(bytes)
      } catch (error) {
        fail(error)
      }
    },
    onDrain: () => {
      if (unsent !== null) send(unsent)
    },
    onIdleTimeout: () => {
      if (exchange === null) close()
    },
    onClose: isReset => {
      // Called from within terminate too, when it is no end of a body either.
      if (!isOpen) return
      const hadBytes = exchange?.hadBytes() ?? false
      try {
        if (isReset) throw new UpstreamFault('cut')
        parser.close()
        close()
      } catch (error) {
        fail(hadBytes ? error : new UpstreamFault('unreachable'))
      }
    },
  }
}

type Exchange = {
  readonly answered: Promise<UpstreamAnswer>
  readonly noteBytes: () => void
  readonly hadBytes: () => boolean
  readonly begin: (head: ResponseHead) => void
  readonly take: (bytes: Uint8Array) => void
  readonly end: () => void
  readonly fail: (error: unknown) => void
}

/** One request's answer, between the socket that brings it and the one who reads it. */
function createExchange(socket: Socket<undefined>, abort: () => void): Exchange {
  const answered = Promise.withResolvers<UpstreamAnswer>()
  let hadBytes = false
  let waiting: Uint8Array[] = []
  let waitingBytes = 0
  let isPaused = false
  let isEnded = false
  let failure: unknown = null
  let reader: PromiseWithResolvers<Uint8Array | null> | null = null

  const resume = () => {
    if (!isPaused) return
    isPaused = false
    socket.resume()
  }
  const read = (): Promise<Uint8Array | null> => {
    assert(reader === null, 'an answer has one reader')
    const [first] = waiting
    if (first !== undefined) {
      const all = waiting.length === 1 ? first : Buffer.concat(waiting)
      waiting = []
      waitingBytes = 0
      resume()
      return Promise.resolve(all)
    }
    if (failure !== null) return Promise.reject(failure)
    if (isEnded) return Promise.resolve(null)
    reader = Promise.withResolvers()
    return reader.promise
  }
  const takeReader = () => {
    const taken = reader
    reader = null
    return taken
  }

  return {
    answered: answered.promise,
    noteBytes: () => {
      hadBytes = true
    },
    hadBytes: () => hadBytes,
    begin: head => answered.resolve({ head, read, abort }),
    take: bytes => {
      const taken = takeReader()
      if (taken !== null) return taken.resolve(bytes)
      waiting.push(bytes)
      waitingBytes += bytes.length
      if (waitingBytes <= waitingBytesMax || isPaused) return
      isPaused = true
      socket.pause()
    },
    end: () => {
      isEnded = true
      resume()
      takeReader()?.resolve(null)
    },
    fail: error => {
      failure = error
      answered.reject(error)
      takeReader()?.reject(error)
    },
  }
}
