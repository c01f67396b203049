// Entry and exit of every gateway request: request id, encryption, errors. Effects: randomness.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { Dialect } from '../openai/dialect.ts'
import type { Encryption } from '../types.ts'
import type { Cors } from './cors.ts'
import { commonHeaders, errorResponse, isServerFailure } from './responses.ts'
import type { Received } from './routes.ts'

/**
 * Handles a request. Never rejects. `address` returns the client's address, for the limits of public endpoints; it is a
 * function, because it costs a system call.
 */
export type GatewayFetch = (request: Request, address: () => string) => Promise<Response>

export type FrontDeps = {
  readonly encryption: Pick<Encryption, 'begin'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  /** Makes the plain response. May throw or reject. */
  readonly dispatch: (request: Request, path: string, received: Omit<Received, 'item'>) => Response | Promise<Response>
  /** Decides which web pages may read responses. */
  readonly cors: Cors
  /** Returns the API that defines the form of errors below a path. */
  readonly dialectOf: (path: string) => Dialect | null
}

export function createFront(deps: FrontDeps): GatewayFetch {
  const { cors } = deps
  const respond = createRespond(deps)
  return (request, address) => {
    const path = pathOf(request.url)
    const preflight = request.method === 'OPTIONS' ? cors.preflight(request, path) : null
    if (preflight !== null) return Promise.resolve(preflight)
    const response = respond(request, path, address)
    return cors.isClosed(path) ? response : response.then(open => cors.open(request, path, open))
  }
}

type Respond = (request: Request, path: string, address: () => string) => Promise<Response>

/** Never rejects. */
function createRespond({ encryption, clock, random, log, dispatch, dialectOf }: FrontDeps): Respond {
  return (request, path, address) => {
    const id = requestId(random, clock.nowMs())
    const failed = (error: unknown) => {
      if (isServerFailure(error)) log.error('request failed', { request: id, error })
      const dialect = dialectOf(path)
      return errorResponse(error, commonHeaders(id, dialect), dialect)
    }
    try {
      const exchange = path.startsWith('/v1/') ? encryption.begin(request) : null
      const received = { id, address, exchange }
      if (exchange !== null) {
        const respond = async () => dispatch(request, path, received)
        // This is the only exit, so no response to an encrypted request is sent in plaintext.
        const plain = respond().catch(failed)
        return plain.then(response => exchange.encrypt(response)).catch(failed)
      }
      const response = dispatch(request, path, received)
      return response instanceof Promise ? response.catch(failed) : Promise.resolve(response)
    } catch (error) {
      return Promise.resolve(failed(error))
    }
  }
}

/** Returns the path of an absolute URL as sent: not decoded, so that each route has a single spelling. */
export function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

/**
 * Returns a version 7 UUID (RFC 9562 5.7). Ids that grow with time cost the ledger half as much as random ids, because
 * its index grows only at its end.
 */
function requestId(random: RandomBytes, nowMs: number): string {
  const bytes = random(16)
  let time = Math.max(0, Math.floor(nowMs))
  for (let at = 5; at >= 0; at -= 1) {
    bytes[at] = time % 256
    time = Math.floor(time / 256)
  }
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toHex()
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
