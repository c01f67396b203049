// Opens a connection to an upstream: TCP, TLS with a checked certificate and key, or a Unix socket. Effects: network.

import type { Socket, SocketHandler } from 'bun'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { UpstreamFault } from '../failure.ts'
import { Connection, type ConnectionDeps } from './connection.ts'
import { type Endpoint, isExpected } from './target.ts'

export type ConnectDeps = ConnectionDeps & {
  readonly deadlines: Deadlines
  readonly connectTimeoutMs: number
}

export type Connecting = {
  /**
   * Rejects with UpstreamFault unreachable, also for a wrong certificate. No byte is sent before the certificate is
   * checked.
   */
  readonly opened: Promise<Connection>
  /** Stops connecting, or closes the connection that was opened. */
  readonly stop: () => void
}

/** Idle time before the first keepalive probe. Bun sends ten probes, one second apart. */
const keepAliveMs = 30_000

export function connect(endpoint: Endpoint, deps: ConnectDeps): Connecting {
  const opened = Promise.withResolvers<Connection>()
  let isStopped = false
  let connection: Connection | null = null
  /** Open, but not yet accepted: the TLS handshake may still be running. */
  let pendingSocket: Socket<undefined> | null = null
  const refuse = (socket: Socket<undefined>) => {
    opened.reject(new UpstreamFault('unreachable'))
    socket.terminate()
  }
  const accept = (socket: Socket<undefined>) => {
    if (isStopped) return socket.terminate()
    // A prompt may take minutes, in which the death of the upstream's machine would go unnoticed.
    socket.setKeepAlive(true, keepAliveMs)
    connection = new Connection(socket, deps)
    opened.resolve(connection)
  }
  const stop = () => {
    isStopped = true
    opened.reject(new UpstreamFault('unreachable'))
    if (connection === null) pendingSocket?.terminate()
    else connection.close()
  }
  const cancelTimeout = deps.deadlines.after(deps.connectTimeoutMs, stop)
  const handlers: SocketHandler<undefined> = {
    open: socket => {
      pendingSocket = socket
      if (endpoint.tls === null || isStopped) accept(socket)
    },
    handshake: (socket, isDone, error) => {
      if (endpoint.tls === null) return
      if (isDone && error === null && isExpected(endpoint, certificateOf(socket))) accept(socket)
      else refuse(socket)
    },
    data: (socket, bytes) => (connection === null ? refuse(socket) : connection.onData(bytes)),
    drain: () => connection?.onDrain(),
    timeout: () => connection?.onIdleTimeout(),
    error: socket => (connection === null ? refuse(socket) : connection.onClose({ isReset: true })),
    close: (socket, error) =>
      connection === null ? refuse(socket) : connection.onClose({ isReset: error !== undefined }),
  }
  begin(endpoint, handlers).catch(() => opened.reject(new UpstreamFault('unreachable')))
  return { opened: opened.promise.finally(cancelTimeout), stop }
}

/** Opens the socket. Async, so that a refusal by Bun, as without free descriptors, is also a rejection. */
async function begin({ address, tls }: Endpoint, socket: SocketHandler<undefined>): Promise<void> {
  if ('unix' in address) await Bun.connect({ ...address, socket })
  else await Bun.connect({ ...address, ...(tls === null ? {} : { tls }), socket })
}

function certificateOf(socket: Socket<undefined>): unknown {
  const certificate: unknown = Reflect.get(socket, 'getPeerCertificate')?.call(socket)
  return Reflect.get(Object(certificate), 'raw')
}
