// Connects the gateway to Bun's server: idle timeouts, draining. Effects: those of the requests.

import type { GatewaySettings } from '../../contract/vm/workload.ts'
import type { FetchHandler } from '../../http/serve.ts'
import type { GatewayFetch } from './front.ts'

/** Bun's longest idle timeout: the gateway's own limits decide how long a stream may pause. */
const streamIdleSeconds = 255

export type HandlerDeps = {
  readonly fetch: GatewayFetch
  /** If true, closes connections after their response, so that clients reach the next gateway. */
  readonly isDraining: () => boolean
}

/** Closes idle connections early between requests; streams may pause. */
export function gatewayHandler(
  { fetch, isDraining }: HandlerDeps,
  { connectionIdleSeconds }: Pick<GatewaySettings, 'connectionIdleSeconds'>,
): FetchHandler {
  return async (request, socket) => {
    // Bun counts the wait for an upstream, which may exceed Bun's longest timeout, as idle. The body has a separate
    // limit.
    socket.timeout(request, 0)
    const response = await fetch(request, () => socket.requestIP(request)?.address ?? '')
    // From here on only a stream may pause; otherwise a refused client could keep its connection as long.
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    socket.timeout(request, isStream ? streamIdleSeconds : connectionIdleSeconds)
    if (isDraining()) response.headers.set('connection', 'close')
    return response
  }
}
