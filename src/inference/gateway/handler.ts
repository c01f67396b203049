// The gateway's requests as Bun's server hands them over. Effects: those of the requests.

import type { GatewaySettings } from '../../contract/vm/workload.ts'
import type { FetchHandler } from '../../http/serve.ts'
import type { GatewayFetch } from './front.ts'

/** Bun's longest idle timeout of a connection. The gateway's own deadlines bound the pauses of a stream. */
const streamIdleSeconds = 255

export type HandlerDeps = {
  readonly fetch: GatewayFetch
  /** Clients are asked to connect anew, which leads them to the next gateway. */
  readonly isDraining: () => boolean
}

/** Connections that are idle between requests end early, streams may pause. */
export function gatewayHandler(
  { fetch, isDraining }: HandlerDeps,
  { connectionIdleSeconds }: Pick<GatewaySettings, 'connectionIdleSeconds'>,
): FetchHandler {
  return async (request, socket) => {
    // Bun counts the wait for an upstream as idle, too.
    socket.timeout(request, streamIdleSeconds)
    const response = await fetch(request, () => socket.requestIP(request)?.address ?? '')
    // From here on only a stream may pause; otherwise a refused client could keep the connection as long.
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    if (!isStream) socket.timeout(request, connectionIdleSeconds)
    if (isDraining()) response.headers.set('connection', 'close')
    return response
  }
}
