// Which web pages may call the gateway: CORS (Fetch standard, 3.3). Pure.
//
// Evidence is public: any page may read the public routes. Below /v1/ only pages of the configured origins may. Keys
// are in headers that a page sets itself, so credentials are not allowed: cookies and certificates do not count.

import type { ResponseHeaders } from './responses.ts'

export type Cors = {
  /**
   * Returns the response to a preflight request; null if the request is not one, or its page may not call this path.
   */
  readonly preflight: (request: Request, path: string) => Response | null
  /** Reports whether no page may read responses of this path. */
  readonly isClosed: (path: string) => boolean
  /** Returns the response, marked as readable by the page if the page may read it. */
  readonly open: (request: Request, path: string, response: Response) => Response
}

/** How long a page may cache the answer to a preflight request. */
const maxAgeSeconds = 600

/** `origins` is as in the settings; `*` means any. */
export function createCors(origins: readonly string[]): Cors {
  const listed: ReadonlySet<string> = new Set(origins)
  const isAny = listed.has('*')
  const isClosed = (path: string) => listed.size === 0 && path.startsWith('/v1/')
  /** Returns the headers for this page; null if it may not read the response. */
  const allowed = (request: Request, path: string): ResponseHeaders | null => {
    if (isClosed(path)) return null
    const isKeyed = path.startsWith('/v1/')
    const origin = request.headers.get('origin')
    if (origin === null) return null
    if (!isKeyed || isAny) return { 'access-control-allow-origin': '*' }
    return listed.has(origin) ? { 'access-control-allow-origin': origin, vary: 'Origin' } : { vary: 'Origin' }
  }
  return {
    isClosed,
    preflight: (request, path) => {
      if (request.method !== 'OPTIONS' || !request.headers.has('access-control-request-method')) return null
      const headers = allowed(request, path)
      if (headers === null || !('access-control-allow-origin' in headers)) return null
      const more = {
        'access-control-allow-methods': path.startsWith('/v1/') ? 'GET, HEAD, POST' : 'GET, HEAD',
        // The wildcard does not cover this header by definition.
        'access-control-allow-headers': '*, Authorization',
        'access-control-max-age': String(maxAgeSeconds),
        'cache-control': 'no-store',
      }
      return new Response(null, { status: 204, headers: { ...headers, ...more } })
    },
    open: (request, path, response) => {
      const headers = allowed(request, path)
      if (headers === null) return response
      for (const [name, value] of Object.entries(headers)) response.headers.append(name, value)
      if ('access-control-allow-origin' in headers) response.headers.set('access-control-expose-headers', '*')
      return response
    },
  }
}
