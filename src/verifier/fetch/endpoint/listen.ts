// Serves an endpoint on a loopback address, by Bun. Effects: a port.

import { Fault, messageOf } from '../../../base/fault.ts'
import { type Endpoint, endpointLimits } from './endpoint.ts'

export type LoopbackAddress = {
  readonly hostname: string
  /** 0: a free one. */
  readonly port: number
}

export type Listening = AsyncDisposable & {
  readonly port: number
  /** Accepts no connection any more; those that are open stay. */
  readonly close: () => void
}

/** Idle limit of a connection before its request; a response may take as long as the gateway does. */
const idleSeconds = 120

/** Disposing ends every connection. Fault host.unsupported when the port is taken. */
export function listenOnLoopback(endpoint: Endpoint, { hostname, port }: LoopbackAddress): Listening {
  try {
    const server = Bun.serve({
      hostname,
      port,
      reusePort: false,
      development: false,
      idleTimeout: idleSeconds,
      maxRequestBodySize: endpointLimits.bodyBytesMax,
      fetch: (request, bun) => endpoint.handle(request, () => bun.timeout(request, 0)),
    })
    return {
      port: server.port ?? port,
      close: () => void server.stop(false),
      [Symbol.asyncDispose]: () => server.stop(true),
    }
  } catch (error) {
    throw new Fault('host.unsupported', `listen on ${hostname} port ${port}: ${messageOf(error)}`, { cause: error })
  }
}
