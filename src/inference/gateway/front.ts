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
 * Never rejects. `address`: returns the client's address, for the limits of public endpoints; a function, because it
 * costs a system call.
 */
export type GatewayFetch = (request: Request, address: () => string) => Promise<Response>

export type FrontDeps = {
  readonly encryption: Pick<Encryption, 'begin'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  /** Makes the plain response. May throw and reject. */
  readonly dispatch: (request: Request, path: string, received: Omit<Received, 'item'>) => Response | Promise<Response>
  /** Decides which web pages may read responses. */
  readonly cors: Cors
  /** The API whose error form a path has. */
  readonly dialectOf: (path: string) => Dialect | null
}

export function createFront(deps: FrontDeps): GatewayFetch {
  const { cors } = deps
  const respond = createRespond(deps)
  return async (request, address) => {
    const path = pathOf(request.url)
    const preflight = request.method === 'OPTIONS' ? cors.preflight(request, path) : null
    if (preflight !== null) return preflight
    const response = await respond(request, path, address)
    cors.open(request, path, response)
    return response
  }
}

type Respond = (request: Request, path: string, address: () => string) => Promise<Response>

/** Never rejects. */
function createRespond({ encryption, clock, random, log, dispatch, dialectOf }: FrontDeps): Respond {
  return async (request, path, address) => {
    const id = requestId(random, clock.nowMs())
    const failed = (error: unknown) => {
      if (isServerFailure(error)) log.error('request failed', { request: id, error })
      const dialect = dialectOf(path)
      return errorResponse(error, commonHeaders(id, dialect), dialect)
    }
    try {
      const exchange = path.startsWith('/v1/') ? encryption.begin(request) : null
      const received = { id, address, exchange }
      if (exchange === null) return await dispatch(request, path, received)
      const respond = async () => dispatch(request, path, received)
      // The only exit, so no response to an encrypted request leaves in the clear.
      return await exchange.encrypt(await respond().catch(failed))
    } catch (error) {
      return failed(error)
    }
  }
}

/** The path of an absolute URL as it was sent: not decoded, so that each route has a single spelling. */
export function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

/**
 * A version 7 UUID (RFC 9562 5.7): ids that grow with time cost the ledger half of what random ids cost, because its
 * index grows only at its end.
 */
function requestId(random: RandomBytes, nowMs: number): string {
  const time = Math.max(0, Math.floor(nowMs)).toString(16).padStart(12, '0')
  const bytes = random(10)
  bytes[0] = ((bytes[0] ?? 0) & 0x0f) | 0x70
  bytes[2] = ((bytes[2] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toHex()
  return `${time.slice(0, 8)}-${time.slice(8)}-${hex.slice(0, 4)}-${hex.slice(4, 8)}-${hex.slice(8)}`
}
