// Peers that may answer at a gateway's address: a relay whose destination a test changes, and servers that keep every
// decrypted byte. Effects: free ports.

import { connect, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { type Certified, serverAuthority } from '../../scripts/rigs/gateway/attested-gateway.ts'

export type Relay = AsyncDisposable & {
  readonly url: string
  /** Ends the connections that there are; new ones go to this port. */
  readonly lead: (port: number) => void
  /** New connections go to this port; those that there are stay. */
  readonly leadNew: (port: number) => void
  readonly connectionCount: () => number
}

/** Carries TCP connections to a port of this machine, as a network does: it sees what it carries, encrypted. */
export async function startRelay(port: number): Promise<Relay> {
  let target = port
  let connectionCount = 0
  const open = new Set<Socket>()
  const server = createTcpServer(from => {
    connectionCount += 1
    const to = connect(target, '127.0.0.1')
    for (const [socket, other] of [[from, to] as const, [to, from] as const]) {
      open.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        open.delete(socket)
        other.destroy()
      })
      socket.pipe(other)
    }
  })
  const close = await listening(server)
  return {
    url: `https://127.0.0.1:${portOf(server)}`,
    leadNew: next => {
      target = next
    },
    lead: next => {
      target = next
      for (const socket of open) socket.destroy()
    },
    connectionCount: () => connectionCount,
    [Symbol.asyncDispose]: async () => {
      for (const socket of open) socket.destroy()
      await close()
    },
  }
}

export type Recorder = AsyncDisposable & {
  readonly url: string
  readonly port: number
  /** Every decrypted byte that came, over all connections. */
  readonly text: () => string
  readonly handshakeCount: () => number
  /** Resolves when so many connections have come and every one has ended. */
  readonly ended: (connectionCount: number) => Promise<void>
}

/** As good a certificate as a gateway's, for a key of its own. */
export async function newCertificate(): Promise<Certified> {
  return await (await serverAuthority()).issue(['127.0.0.1'], 1)
}

type Bytes = string | Uint8Array
/** Null: never; an iterable: piece by piece, while the connection lasts. */
type Answer = Bytes | null | AsyncIterable<Bytes>

/** Answers each request with what `answer` gives for its head. Nothing is parsed but how a request begins. */
export async function startRecorder(
  pair: Certified,
  answer: (head: string) => Answer | Promise<Answer> = () => null,
): Promise<Recorder> {
  let text = ''
  let handshakeCount = 0
  let begun = 0
  let over = 0
  let watchers: { count: number; seen: () => void }[] = []
  const open = new Set<TLSSocket | Socket>()
  const look = () => {
    for (const watcher of watchers) if (begun >= watcher.count && over === begun) watcher.seen()
    watchers = watchers.filter(({ count }) => begun < count || over !== begun)
  }
  const server = createTlsServer({ cert: pair.cert, key: pair.key }, socket => {
    handshakeCount += 1
    socket.on('error', () => {})
    socket.on('data', async (bytes: Buffer) => {
      text += bytes.toString('latin1')
      const head = bytes.toString('latin1')
      if (!/^[A-Z]+ \//.test(head)) return
      const given = await answer(head)
      if (given === null) return
      const pieces = typeof given === 'string' || given instanceof Uint8Array ? [given] : given
      for await (const piece of pieces) {
        if (socket.destroyed) return
        socket.write(piece)
      }
    })
  })
  server.on('tlsClientError', () => {})
  server.on('connection', (socket: Socket) => {
    begun += 1
    open.add(socket)
    socket.on('close', () => {
      over += 1
      open.delete(socket)
      look()
    })
  })
  const close = await listening(server)
  return {
    url: `https://127.0.0.1:${portOf(server)}`,
    port: portOf(server),
    text: () => text,
    handshakeCount: () => handshakeCount,
    ended: count =>
      new Promise(resolve => {
        watchers.push({ count, seen: resolve })
        look()
      }),
    [Symbol.asyncDispose]: async () => {
      for (const socket of open) socket.destroy()
      await close()
    },
  }
}

/** One whole response, after which the connection stays open. */
export function httpResponse(body: string | Uint8Array, head: readonly string[] = [], status = '200 OK'): Uint8Array {
  const bytes = Buffer.from(body)
  const lines = [`HTTP/1.1 ${status}`, `content-length: ${bytes.length}`, ...head]
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), bytes])
}

/** Port in the server's `address`, whose type has more kinds. */
function portOf(server: Server): number {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the server does not listen')
  return address.port
}

async function listening(server: Server): Promise<() => Promise<void>> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return () => new Promise<void>(resolve => server.close(() => resolve()))
}

export type Proxy = AsyncDisposable & {
  readonly port: number
  /** Paths and bodies that went through it, as whoever ends TLS connections sees them. */
  readonly seen: { readonly path: string; readonly body: string; readonly headers: Headers }[]
}

type ProxyOptions = {
  /** Left out: a key of its own. */
  readonly pair?: Certified
  /** The path below which it leads to what is behind; all other paths are not found. */
  readonly prefix?: string
}

/** Ends TLS and passes requests on, like a load balancer. `answer` may respond itself. */
export async function startProxy(
  behind: () => string,
  answer: (request: Request, forward: () => Promise<Response>) => Response | Promise<Response> = (_, forward) =>
    forward(),
  { pair, prefix = '' }: ProxyOptions = {},
): Promise<Proxy> {
  const { cert, key } = pair ?? (await newCertificate())
  const { caPem: ca } = await serverAuthority()
  const seen: Proxy['seen'] = []
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert, key },
    development: false,
    idleTimeout: 60,
    fetch: async request => {
      const { pathname, search } = new URL(request.url)
      const body = new Uint8Array(await request.arrayBuffer())
      seen.push({ path: pathname, body: Buffer.from(body).toString('latin1'), headers: request.headers })
      const { method, headers } = request
      if (!pathname.startsWith(`${prefix}/`)) return new Response(null, { status: 404 })
      const forward = () =>
        fetch(`${behind()}${pathname.slice(prefix.length)}${search}`, {
          method,
          headers,
          tls: { ca },
          ...(body.length === 0 ? {} : { body }),
        })
      return await answer(request, forward)
    },
  })
  return {
    port: server.port ?? 0,
    seen,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
    },
  }
}
