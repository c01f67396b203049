// Listens on the gateway's address with a handler, alone or together with other processes. Effects: a listening socket.

import type { Logger } from '../../base/log.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import { type FetchHandler, type ServedTls, serveTls } from '../../http/serve.ts'
import { boundReceiveBuffers } from '../../linux/libc/sockets.ts'

export type ListenOptions = {
  readonly listen: { readonly hostname: string; readonly port: number }
  /** Null for plain HTTP. */
  readonly tls: ServedTls | null
  /** See `serveTls`. */
  readonly guestName: string
  /** Whether other processes of the gateway also listen on the address. */
  readonly isShared: boolean
  readonly settings: Pick<GatewaySettings, 'connectionIdleSeconds' | 'http2'>
  readonly log: Logger
}

export type Listening = {
  readonly port: number
  /** With `isGraceful`, requests in flight may end; otherwise they are cut off. */
  readonly stop: (isGraceful: boolean) => Promise<void>
}

/** The gateway itself limits bodies, and refuses them with its own message. */
const requestBodyBytesMax = Number.MAX_SAFE_INTEGER

/** Starts listening. Throws Fault host.unsupported if the address cannot be used. */
export function listenWith(
  handler: FetchHandler,
  { listen, tls, guestName, isShared, settings, log }: ListenOptions,
): Listening {
  const idleTimeoutSeconds = settings.connectionIdleSeconds
  if (tls !== null) {
    const http2 = settings.http2 === true
    const limits = { idleTimeoutSeconds, requestBodyBytesMax, boundsReceiving: true }
    return serveTls(handler, { ...listen, isShared, tls, guestName, http2, ...limits, log })
  }
  const server = Bun.serve({
    ...listen,
    reusePort: isShared,
    idleTimeout: idleTimeoutSeconds,
    maxRequestBodySize: requestBodyBytesMax,
    // Bun's own error page shows source and paths.
    development: false,
    fetch: handler,
  })
  const port = server.port ?? listen.port
  boundReceiveBuffers(port)
  return { port, stop: isGraceful => server.stop(!isGraceful) }
}
