// Serves an endpoint on a loopback address with Bun. Effects: opens a port.

import { Fault, messageOf } from '../../../base/fault.ts'
import { type Endpoint, endpointLimits } from './endpoint.ts'

export type LoopbackAddress = {
  readonly hostname: string
  /** 0 selects a free port. */
  readonly port: number
}

export type Listening = AsyncDisposable & {
  readonly port: number
  /** Stops accepting connections; open ones continue. */
  readonly close: () => void
}

/** Idle timeout of a connection before its request. A response may take as long as the gateway's. */
const idleSeconds = 120

/** Serves the endpoint. Disposing closes every connection. Fault host.unsupported if the port is in use. */
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
