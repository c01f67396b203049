// A scripted stand-in on 127.0.0.1 for Intel's provisioning service and NVIDIA's RIM and OCSP services: the outermost
// edge, beyond which nothing of theirs is asked. Its answers have the form of theirs, and no more is known from it.

import { expect } from 'bun:test'

export type Answer = (request: Request) => Response | Promise<Response>

export type CollateralServer = AsyncDisposable & {
  /** Base URL with a slash at its end. */
  readonly url: string
  /** Method, path and query, in the order in which they came. */
  requests: string[]
  /** Answers before the script if it returns a response. */
  instead: (request: Request) => Response | null
}

/** `script`: the working services, by path without the query. */
export function startCollateralServer(script: (path: string) => Answer | undefined): CollateralServer {
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: request => {
      const { pathname, search } = new URL(request.url)
      self.requests.push(`${request.method} ${pathname}${search}`)
      return self.instead(request) ?? script(pathname)?.(request) ?? new Response('none', { status: 404 })
    },
  })
  const self: CollateralServer = {
    url: server.url.href,
    requests: [],
    instead: () => null,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return self
}

/** Answers that are no collateral, after words of the failure that each must have. */
export const NO_COLLATERAL: readonly (readonly [words: string, answer: () => Response])[] = [
  ['HTTP status 429', () => new Response('', { status: 429 })],
  ['HTTP status 503', () => new Response('', { status: 503, headers: { 'retry-after': '31' } })],
  ['HTTP status 404: the server has no such file', () => new Response('', { status: 404 })],
  ['HTTP status 500', () => new Response('', { status: 500 })],
  ['302: redirects are not followed', () => new Response('', { status: 302, headers: { location: '/elsewhere' } })],
  ['bytes came', () => new Response(new Uint8Array(2 ** 20))],
  ['not what was requested', () => new Response('<html>sign in</html>')],
]

type Fetched = { readonly code: number; readonly document: { readonly error: unknown } }

/** With this answer at each of the paths in turn, a fetch judges nothing and has these words. */
export async function expectNoCollateral(
  server: CollateralServer,
  paths: readonly string[],
  [words, answer]: (typeof NO_COLLATERAL)[number],
  fetched: () => Promise<Fetched>,
): Promise<void> {
  for (const path of paths) {
    server.instead = request => (new URL(request.url).pathname === path ? answer() : null)
    const { code, document } = await fetched()
    const error = { code: 'attest.unavailable', message: expect.stringContaining(words), param: expect.any(String) }
    expect([path, code, document.error]).toEqual([path, 3, error])
  }
}
