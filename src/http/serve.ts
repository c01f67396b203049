// HTTPS that changes its certificate without a restart. Effects: listening sockets. Bun.serve keeps its certificate for
// life: `reload({ tls })` has no effect (tried on 1.4.5). So a second server takes the port over by SO_REUSEPORT; the
// first stops listening and finishes its requests.

import { Fault, messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { boundReceiveBuffers } from '../linux/libc/sockets.ts'
import type { Tls } from './certificate.ts'
import type { NamedCertificate, TlsPair } from './pair.ts'

export type ServedTls = Pick<Tls, 'guestCertificate' | 'onChange'> & {
  /** Certificates of other names than those of `current`. Default: all get that one. */
  readonly named?: () => readonly NamedCertificate[]
  readonly current: () => Pick<TlsPair, 'cert' | 'key'>
}

export type ServeTlsOptions = {
  readonly hostname: string
  /** 0: any free port, which is then kept. */
  readonly port: number
  /** Other processes of the appliance listen there, too. */
  readonly isShared?: boolean
  readonly tls: ServedTls
  /** Connections to this name (SNI, RFC 6066 section 3) get the certificate of `tls.guestCertificate`. */
  readonly guestName?: string
  readonly idleTimeoutSeconds: number
  /** Clients that offer it by ALPN get HTTP/2. Default: HTTP/1.1 alone. */
  readonly http2?: boolean
  /** Bun refuses a larger body before the handler runs; must exceed the handler's own limit. */
  readonly requestBodyBytesMax: number
  /** Whether a client's bytes take a short turn of the event loop, however fast they come. Default: false. */
  readonly boundsReceiving?: boolean
  readonly log: Logger
}

export type TlsServer = {
  readonly port: number
  /** `graceful`: requests in flight may finish; otherwise they are cut off. */
  readonly stop: (graceful: boolean) => Promise<void>
}

export type FetchHandler = (request: Request, server: Bun.Server<undefined>) => Response | Promise<Response>

/**
 * A port of this address that no process uses now, for several processes of the appliance. Port 0: any. Fault
 * host.unsupported when the address cannot be listened on.
 */
export function unusedPortOf({ hostname, port }: { readonly hostname: string; readonly port: number }): number {
  try {
    const server = Bun.serve({ hostname, port, reusePort: false, development: false, fetch: () => new Response() })
    const found = server.port ?? port
    void server.stop(true)
    return found
  } catch (error) {
    throw cannotListen({ hostname, port }, error)
  }
}

function cannotListen({ hostname, port }: { readonly hostname: string; readonly port: number }, error: unknown): Fault {
  return new Fault('host.unsupported', `listen on ${hostname} port ${port}: ${messageOf(error)}`, { cause: error })
}

/** The longest that Bun can allow a connection to be idle, except for ever (0). */
export const pauseSecondsMax = 255

/** Serves over TLS. Throws Fault host.unsupported if the address cannot be used. */
export function serveTls(handler: FetchHandler, options: ServeTlsOptions): TlsServer {
  const { hostname, tls, guestName, log } = options
  const certificates = () => {
    const { cert, key } = tls.current()
    const guests = guestName === undefined ? [] : [{ serverName: guestName, cert: tls.guestCertificate() }]
    const named = [...guests, ...(tls.named?.() ?? [])]
    return [{ cert, key }, ...named.map(row => ({ ...row, key }))]
  }
  const listen = (port: number, reusePort: boolean): Bun.Server<undefined> => {
    const server = Bun.serve({
      hostname,
      port,
      reusePort,
      idleTimeout: options.idleTimeoutSeconds,
      maxRequestBodySize: options.requestBodyBytesMax,
      // Bun's own error page shows source and paths.
      development: false,
      tls: certificates(),
      http2: options.http2 === true,
      fetch: handler,
    })
    if (options.boundsReceiving === true) boundReceiveBuffers(server.port ?? port)
    return server
  }
  let current: Bun.Server<undefined>
  try {
    // Sharing would hide another process on the port, so the first attempt does not share.
    if (options.port !== 0 && options.isShared !== true) listen(options.port, false).stop(true)
    current = listen(options.port, true)
  } catch (error) {
    throw cannotListen(options, error)
  }
  const port = current.port ?? options.port
  const ending = new Set<Promise<void>>()
  const outgoing = new Set<Bun.Server<undefined>>()
  let stopped = false

  tls.onChange(() => {
    if (stopped) return
    const old = current
    // If this throws, the old server stays in service.
    current = listen(port, true)
    outgoing.add(old)
    const end = old
      .stop(false)
      .catch(error => log.error('old listener did not stop', { error }))
      .then(() => {
        outgoing.delete(old)
        ending.delete(end)
      })
    ending.add(end)
  })
  return {
    port,
    stop: async graceful => {
      stopped = true
      if (!graceful) for (const server of outgoing) void server.stop(true)
      await Promise.all([current.stop(!graceful), ...ending])
    },
  }
}
