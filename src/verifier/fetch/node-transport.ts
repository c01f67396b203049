// HTTPS for Bun and Node that checks the key of every connection before writing a byte of a request to it. Effects: the
// network.
//
// An agent of node:https makes the connections, and returns one only after its handshake, when the SPKI of its
// certificate has been checked: before that, no request has a socket. Bun's fetch with tls.checkServerIdentity is
// unsuitable: it checks each request, so each opens its own connection, and its result is ignored with
// rejectUnauthorized: false (tried on 1.4.5).

import { createHash, X509Certificate } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Agent, type RequestOptions, request as startRequest } from 'node:https'
import { isIP } from 'node:net'
import type { Duplex } from 'node:stream'
import { connect, type TLSSocket } from 'node:tls'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { onAbort } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { ConnectionError, PeerKeyError } from './errors.ts'
import { evidenceAnswer } from './evidence-answer.ts'
import type { Wire } from './options.ts'
import { bodyAtOnce } from './response-body.ts'
import type {
  Channel,
  EvidenceAnswer,
  EvidenceAnswers,
  EvidenceQuestion,
  Transport,
  WireRequest,
  WireResponse,
} from './transport.ts'

export function createNodeTransport(wire: Wire): Transport {
  return {
    pins: true,
    askEvidence: (questions, signal) => askEvidence(wire, questions, signal),
    open: tlsSpkiDigest => new PinnedChannel(wire, tlsSpkiDigest),
  }
}

/** Checks a peer's key. Returns a fault; null if it is accepted. */
type Judge = (spkiDigest: Uint8Array) => Error | null

/** How long an idle connection is kept: less than servers do, so that no request meets a connection that is closing. */
const idleSocketMs = 4_000

class JudgingAgent extends Agent {
  readonly #wire: Wire
  readonly #judge: Judge
  readonly #judged = new WeakSet<object>()
  readonly #used = new WeakSet<object>()

  constructor(wire: Wire, judge: Judge) {
    super({ keepAlive: true, timeout: idleSocketMs })
    this.#wire = wire
    this.#judge = judge
  }

  /**
   * Returns the state of a socket that is about to receive a request; null if this agent did not check it, because the
   * runtime took it from elsewhere.
   */
  take(socket: object): 'new' | 'used' | null {
    if (!this.#judged.has(socket)) return null
    const found = this.#used.has(socket) ? 'used' : 'new'
    this.#used.add(socket)
    return found
  }

  endIdle(): void {
    // Not destroy(), which would abort running requests.
    for (const socket of Object.values(this.freeSockets).flat()) socket?.destroy()
  }

  override createConnection(
    { host, port }: RequestOptions,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    const { ca, connectTimeoutMs } = this.#wire
    const socket = connect({
      host: host ?? '',
      port: Number(port),
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: ca !== 'any',
      ...(isIP(host ?? '') === 0 ? { servername: host ?? '' } : {}),
      ...(ca === undefined || ca === 'any' ? {} : { ca }),
    })
    const finish = (error: Error | null) => {
      clearTimeout(timer)
      socket.off('error', finish)
      socket.off('close', closed)
      // A rejected socket has no other listener for its errors.
      if (error !== null) socket.on('error', () => {}).destroy()
      callback?.(error, socket)
    }
    const closed = () => finish(new Error('the connection was closed before its handshake ended'))
    const timer = setTimeout(() => finish(new Error(`no connection within ${connectTimeoutMs} ms`)), connectTimeoutMs)
    socket.once('error', finish)
    socket.once('close', closed)
    socket.once('secureConnect', () => {
      const error = this.#judgePeer(socket)
      if (error === null) this.#judged.add(socket)
      finish(error)
    })
  }

  #judgePeer(socket: TLSSocket): Error | null {
    try {
      return this.#judge(spkiDigestOf(socket))
    } catch (error) {
      return new PeerKeyError(`the server's certificate cannot be read: ${messageOf(error)}`)
    }
  }
}

/** Returns SHA-256 of the leaf's SubjectPublicKeyInfo (RFC 5280 4.1.2.7). */
function spkiDigestOf(socket: TLSSocket): Uint8Array {
  const { publicKey } = new X509Certificate(socket.getPeerCertificate(false).raw)
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return new Uint8Array(createHash('sha256').update(spki).digest())
}

class PinnedChannel implements Channel {
  readonly #agent: JudgingAgent
  readonly #wire: Wire

  constructor(wire: Wire, pinned: Uint8Array | 'any') {
    if (pinned === 'any') throw new TypeError('a connection without a pinned key')
    this.#wire = wire
    this.#agent = new JudgingAgent(wire, found => {
      if (equalConstantTime(found, pinned)) return null
      return new PeerKeyError(`the TLS key of the connection is ${toHex(found)}, the attested one ${toHex(pinned)}`)
    })
  }

  async send(request: WireRequest): Promise<WireResponse> {
    const { signal } = request
    try {
      return responseOf(await sendFresh(this.#agent, request, this.#wire), request)
    } catch (error) {
      if (signal?.aborted) throw signal.reason
      if (error instanceof PeerKeyError || error instanceof ConnectionError) throw error
      const what = `no response from ${request.url.host}: ${messageOf(error)}`
      const isDone = error instanceof UnansweredError && error.isWritten
      if (!isDone) throw new ConnectionError(what, { cause: error, isUnsent: true })
      throw new ConnectionError(`${what}. ${unknownOutcome(request)}`, { cause: error })
    }
  }

  close(): void {
    this.#agent.endIdle()
  }
}

/** A connection ended before the head of a response. */
class UnansweredError extends Error {
  override readonly name = 'UnansweredError'
  /** Whether bytes of the request were written, so that the server may have executed it. */
  readonly isWritten: boolean
  /** Whether the server may have closed the connection as idle: it was reused, and this side did not close it. */
  readonly isStale: boolean

  constructor(
    message: string,
    found: { readonly isWritten: boolean; readonly isStale: boolean; readonly cause: Error },
  ) {
    super(message, { cause: found.cause })
    this.isWritten = found.isWritten
    this.isStale = found.isStale
  }
}

/** Methods for which repeating has the same effect as sending once (RFC 9110 9.2.2). */
const IDEMPOTENT: readonly string[] = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'TRACE']

function isIdempotent({ method }: WireRequest): boolean {
  return IDEMPOTENT.includes(method.toUpperCase())
}

function unknownOutcome(request: WireRequest): string {
  const sent = `The ${request.method} was sent and may have been carried out. What to do:`
  if (isIdempotent(request)) return `${sent} send it again`
  return `${sent} send it again only where it does no harm (and costs too little to matter) to do it twice`
}

async function askEvidence(
  wire: Wire,
  questions: readonly EvidenceQuestion[],
  signal: AbortSignal,
): Promise<EvidenceAnswers> {
  let tlsSpkiDigest: Uint8Array | null = null
  const agent = new JudgingAgent(wire, found => {
    // A server may close the connection between two requests.
    if (tlsSpkiDigest !== null && !equalConstantTime(found, tlsSpkiDigest))
      return new PeerKeyError('two servers answer')
    tlsSpkiDigest = found
    return null
  })
  const answers: EvidenceAnswer[] = []
  try {
    for (const { url, bodyBytesMax } of questions) {
      const request: WireRequest = { method: 'GET', url, headers: new Headers(QUESTION), body: null, signal }
      const { status, headers, body } = responseOf(await sendFresh(agent, request, wire), request)
      answers.push(evidenceAnswer(status, headers, await bodyAtOnce(body, bodyBytesMax)))
    }
  } finally {
    agent.endIdle()
  }
  if (tlsSpkiDigest === null) throw new Error('the runtime did not show the key of the connection')
  return { answers, tlsSpkiDigest }
}

const QUESTION = { accept: 'application/json' } as const

/**
 * Sends a request, and resends it over a new connection if the server closed an idle connection just when it was taken.
 * Resends only if nothing was written, or the method may be repeated (RFC 9110 9.2.2).
 */
async function sendFresh(agent: JudgingAgent, request: WireRequest, wire: Wire): Promise<IncomingMessage> {
  try {
    return await sendOver(agent, request, wire)
  } catch (error) {
    const isAgain = error instanceof UnansweredError && error.isStale && (!error.isWritten || isIdempotent(request))
    if (!isAgain) throw error
    agent.endIdle()
    const { isWritten } = error
    return await sendOver(agent, request, wire).catch(again => {
      // The server may have executed the request of the first connection.
      if (!isWritten || again instanceof PeerKeyError) throw again
      throw new UnansweredError(messageOf(again), { isWritten, isStale: false, cause: again })
    })
  }
}

/** Sends a request over a connection. Resolves with the head of the response. */
function sendOver(agent: JudgingAgent, request: WireRequest, wire: Wire): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const { method, url, body, signal } = request
    const headers = Object.fromEntries(request.headers)
    headers['accept-encoding'] = 'identity'
    if (body !== null) headers['content-length'] = String(body.length)
    const outgoing = startRequest({
      agent,
      method,
      headers,
      path: `${url.pathname}${url.search}`,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port || 443,
    })
    let isStale = false
    let isWritten = false
    const fail = (why: string) => {
      isStale = false
      outgoing.destroy(new Error(why))
    }
    const unfit = () => fail('this runtime does not take the connections of an agent of node:https')
    const timer = setTimeout(unfit, wire.connectTimeoutMs + unfitAfterMs)
    const stopWatching = signal === null ? () => {} : onAbort(signal, () => fail('the caller has left'))
    const ended = (error: Error) => {
      const isTaken = isWritten || isStale
      reject(isTaken ? new UnansweredError(messageOf(error), { isWritten, isStale, cause: error }) : error)
    }
    outgoing.on('error', ended)
    outgoing.on('close', () => {
      clearTimeout(timer)
      stopWatching()
      ended(new Error('the connection was closed'))
    })
    outgoing.once('socket', async socket => {
      clearTimeout(timer)
      // Nothing has been written yet: node:http writes the head with the first byte of the body, or at the end.
      const found = agent.take(socket)
      if (found === null) return unfit()
      if (found === 'used') {
        isStale = true
        await newsOfSocket()
        if (outgoing.destroyed) return
        if (socket.destroyed || socket.readableEnded) return void outgoing.destroy(new Error('the server had ended it'))
      }
      outgoing.setTimeout(wire.idleTimeoutMs, () => fail(`nothing for ${wire.idleTimeoutMs} ms`))
      isWritten = true
      outgoing.end(body ?? undefined)
    })
    outgoing.once('response', resolve)
  })
}

/** Waits two turns of the event loop, which detect a close of the connection that has already arrived. */
async function newsOfSocket(): Promise<void> {
  for (let turn = 0; turn < 2; turn += 1) await new Promise<void>(resolve => setImmediate(resolve))
}

/** Timeout in case the agent is bypassed; its own timeout is shorter. */
const unfitAfterMs = 1_000

const EMPTY_STATUSES: readonly number[] = [204, 205, 304]

function responseOf(message: IncomingMessage, { method }: WireRequest): WireResponse {
  const { statusCode: status = 0, statusMessage: statusText = '' } = message
  const headers = new Headers()
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value)
  }
  const coding = headers.get('content-encoding') ?? 'identity'
  if (status < 200 || status > 599 || coding !== 'identity') {
    message.destroy()
    throw new ConnectionError(`a response of status ${status} and content-encoding ${coding} cannot be used`)
  }
  if (method === 'HEAD' || EMPTY_STATUSES.includes(status)) {
    message.resume()
    return { status, statusText, headers, body: null }
  }
  return { status, statusText, headers, body: bodyOf(message) }
}

function bodyOf(message: IncomingMessage): ReadableStream<Uint8Array<ArrayBuffer>> {
  const chunks: AsyncIterator<Buffer> = message[Symbol.asyncIterator]()
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      pull: async controller => {
        const { done, value } = await chunks.next()
        if (done) return controller.close()
        controller.enqueue(new Uint8Array(value))
      },
      cancel: () => void message.destroy(),
    },
    { highWaterMark: 0 },
  )
}
