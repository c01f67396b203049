// An upstream that is only a socket, for what no HTTP server does; and certificates for it. Effects: listening sockets.

import { mkdtempSync, rmSync } from 'node:fs'
import { isIP } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Socket } from 'bun'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines, type Deadlines } from '../../../src/base/work/deadlines.ts'
import type { UpstreamResponse } from '../../../src/inference/upstream/connection.ts'
import { failure } from '../until.ts'
import { target } from './server.ts'

const x509 = await loadX509()

export type ReceivedRequest = { readonly head: string; readonly body: Buffer }

/** One connection, as the upstream has it. */
export type Peer = {
  /** Whole requests that came on it. */
  readonly asked: ReceivedRequest[]
  /** Bytes that came on it. */
  readonly bytes: () => number
  /** Sends as fast as the client reads; resolves when the kernel has all of it, or the connection is closed. */
  readonly write: (bytes: string | Uint8Array) => Promise<void>
  /** Bytes that the kernel has not taken. */
  readonly unsent: () => number
  readonly end: () => void
  readonly reset: () => void
  /** Stops reading, so that the client's buffers fill; and goes on. */
  readonly pause: () => void
  readonly resume: () => void
  /** When it was closed, by performance.now(). */
  readonly closed: Promise<number>
}

type Behaviour = {
  readonly onOpen?: (peer: Peer) => void
  readonly onBytes?: (peer: Peer) => void
  readonly onRequest?: (peer: Peer, asked: ReceivedRequest) => void
}

export type RawUpstream = AsyncDisposable & {
  /** In the order they came. */
  readonly peers: Peer[]
  /** Connections that are open. */
  readonly open: () => number
  readonly port: number
  readonly target: ReturnType<typeof target>
}

export type Transport =
  | { readonly kind: 'tcp' }
  | { readonly kind: 'unix' }
  | { readonly kind: 'tls'; readonly own: SelfSigned }

/** `hostname` is where it listens, but for a Unix socket. */
export async function startRaw(place: Transport, behaviour: Behaviour, hostname = '127.0.0.1'): Promise<RawUpstream> {
  const peers: Peer[] = []
  const wires = new Map<Socket<undefined>, Wire>()
  let open = 0
  const socket = {
    open: (socket: Socket<undefined>) => {
      open += 1
      const wire = createPeer(socket, behaviour)
      wires.set(socket, wire)
      peers.push(wire.peer)
      behaviour.onOpen?.(wire.peer)
    },
    data: (socket: Socket<undefined>, bytes: Buffer) => wires.get(socket)?.onData(bytes),
    drain: (socket: Socket<undefined>) => wires.get(socket)?.onDrain(),
    close: (socket: Socket<undefined>) => {
      if (!wires.has(socket)) return
      open -= 1
      wires.get(socket)?.onClose()
      wires.delete(socket)
    },
    error: () => {},
  }
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-raw-'))
  const unix = join(directory, 'upstream.sock')
  const tcp = { hostname, port: 0, socket }
  const server =
    place.kind === 'unix'
      ? Bun.listen({ unix, socket })
      : Bun.listen(place.kind === 'tcp' ? tcp : { ...tcp, tls: { cert: place.own.cert, key: place.own.key } })
  const port = 'port' in server && place.kind !== 'unix' ? Number(server.port) : 80
  const url = `${place.kind === 'tls' ? 'https' : 'http'}://127.0.0.1:${port}/v1`
  const reached = {
    unix: { unixSocket: unix },
    tcp: {},
    tls: { ca: place.kind === 'tls' ? place.own.cert : null },
  }[place.kind]
  return {
    peers,
    open: () => open,
    port,
    target: target(url, reached),
    [Symbol.asyncDispose]: async () => {
      server.stop(true)
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

type Wire = {
  readonly peer: Peer
  readonly onData: (bytes: Buffer) => void
  readonly onDrain: () => void
  readonly onClose: () => void
}

function createPeer(socket: Socket<undefined>, { onBytes, onRequest }: Behaviour): Wire {
  const closed = Promise.withResolvers<number>()
  let arrived: Buffer[] = []
  let bytes = 0
  let outgoing: { left: Uint8Array; sent: () => void }[] = []
  let isEnding = false
  const flush = () => {
    for (let [first] = outgoing; first !== undefined; [first] = outgoing) {
      first.left = first.left.subarray(Math.max(0, socket.write(first.left)))
      if (first.left.length > 0) return
      outgoing = outgoing.slice(1)
      first.sent()
    }
    if (isEnding) socket.end()
  }
  const peer: Peer = {
    asked: [],
    bytes: () => bytes,
    write: data =>
      new Promise(sent => {
        outgoing.push({ left: Buffer.from(data), sent })
        if (outgoing.length === 1) flush()
      }),
    unsent: () => outgoing.reduce((sum, { left }) => sum + left.length, 0),
    end: () => {
      isEnding = true
      flush()
    },
    reset: () => void socket.terminate(),
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
    closed: closed.promise,
  }
  const takeRequest = () => {
    const all = Buffer.concat(arrived)
    arrived = [all]
    const at = all.indexOf('\r\n\r\n')
    if (at < 0) return
    const head = all.toString('latin1', 0, at)
    const length = Number(/^content-length: (\d+)$/m.exec(head)?.[1] ?? 0)
    if (all.length < at + 4 + length) return
    const asked = { head, body: all.subarray(at + 4, at + 4 + length) }
    arrived = [all.subarray(at + 4 + length)]
    peer.asked.push(asked)
    onRequest?.(peer, asked)
  }
  return {
    peer,
    onData: data => {
      bytes += data.length
      arrived.push(data)
      onBytes?.(peer)
      takeRequest()
    },
    onDrain: flush,
    onClose: () => {
      for (const { sent } of outgoing) sent()
      outgoing = []
      closed.resolve(performance.now())
    },
  }
}

export type SelfSigned = { readonly cert: string; readonly key: string; readonly spkiSha256: string }

/** A certificate for these names and addresses, valid for an hour. */
export function selfSigned(...names: string[]): Promise<SelfSigned> {
  return selfSignedUntil(Date.now() + 3_600_000, names)
}

export async function selfSignedUntil(endMs: number, names: readonly string[]): Promise<SelfSigned> {
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
  const keys = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: 'CN=upstream',
    notBefore: new Date(endMs - 7_200_000),
    notAfter: new Date(endMs),
    keys,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.SubjectAlternativeNameExtension(
        names.map(value => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value }) as const),
      ),
    ],
  })
  const key = x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', keys.privateKey), 'PRIVATE KEY')
  const spki = new Uint8Array(await crypto.subtle.exportKey('spki', keys.publicKey))
  const spkiSha256 = new Bun.CryptoHasher('sha256').update(spki).digest('hex')
  return { cert: certificate.toString('pem'), key, spkiSha256 }
}

/** A JSON response that keeps its connection. */
export function jsonResponse(body: string, fields = ''): string {
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${fields}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}

/** The rest of a response's body. */
export async function readText(answer: UpstreamResponse): Promise<string> {
  const all: Uint8Array[] = []
  for (let bytes = await answer.read(); bytes !== null; bytes = await answer.read()) all.push(bytes)
  return Buffer.concat(all).toString()
}

/** Why it failed: an UpstreamFault's reason, or a Fault's code. */
export async function reasonOf(asked: Promise<unknown>): Promise<string> {
  const error = await failure(asked)
  return 'reason' in error ? String(error.reason) : String(error.code)
}

/** Deadlines that can be counted. */
export function countedDeadlines(): Deadlines & { readonly pending: () => number } {
  const inner = createDeadlines(systemClock)
  let pending = 0
  return {
    pending: () => pending,
    after: (ms, onLate) => {
      let isOver = false
      const over = () => {
        if (!isOver) pending -= 1
        isOver = true
      }
      pending += 1
      const forget = inner.after(ms, () => {
        over()
        onLate()
      })
      return () => {
        over()
        forget()
      }
    },
    moving: onLate => {
      let isSet = false
      const note = (is: boolean) => {
        pending += Number(is) - Number(isSet)
        isSet = is
      }
      const deadline = inner.moving(() => {
        note(false)
        onLate()
      })
      return {
        set: ms => {
          note(true)
          deadline.set(ms)
        },
        clear: () => {
          note(false)
          deadline.clear()
        },
      }
    },
  }
}
