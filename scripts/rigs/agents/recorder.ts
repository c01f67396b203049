// A relay between an agent and a gateway that keeps each request, and what became of it. Effects: a port on loopback.

export type Exchange = {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly status: number
  /** `x-strongroom-ignored`. */
  readonly ignored: string | null
}

export type Recorder = AsyncDisposable & {
  readonly url: string
  readonly exchanges: Exchange[]
  /** Where requests go. */
  target: string
}

/** Headers that say in which form a request is. */
const KEPT = ['anthropic-beta', 'anthropic-version', 'content-encoding', 'content-type', 'openai-beta', 'upgrade']

export function startRecorder(gatewayUrl: string): Recorder {
  const exchanges: Exchange[] = []
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 0,
    development: false,
    maxRequestBodySize: 64 * 1024 * 1024,
    fetch: async request => {
      const { pathname, search } = new URL(request.url)
      const bytes = new Uint8Array(await request.arrayBuffer())
      const headers = new Headers(request.headers)
      headers.delete('host')
      headers.delete('connection')
      headers.set('accept-encoding', 'identity')
      const response = await fetch(recorder.target + pathname + search, {
        method: request.method,
        headers,
        body: bytes.length === 0 ? null : bytes,
        signal: request.signal,
      })
      exchanges.push({
        method: request.method,
        path: pathname + search,
        headers: Object.fromEntries(KEPT.flatMap(name => pair(name, request.headers.get(name)))),
        body: decodeText(bytes, request.headers.get('content-encoding')),
        status: response.status,
        ignored: response.headers.get('x-strongroom-ignored'),
      })
      return new Response(response.body, { status: response.status, headers: response.headers })
    },
  })
  const recorder: Recorder = {
    target: gatewayUrl,
    url: `http://127.0.0.1:${server.port}`,
    exchanges,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return recorder
}

function pair(name: string, value: string | null): [string, string][] {
  return value === null ? [] : [[name, value]]
}

function decodeText(bytes: Uint8Array<ArrayBuffer>, coding: string | null): string {
  if (coding === 'zstd') return new TextDecoder().decode(Bun.zstdDecompressSync(bytes))
  return new TextDecoder().decode(coding === 'gzip' ? Bun.gunzipSync(bytes) : bytes)
}
