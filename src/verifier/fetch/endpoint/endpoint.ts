// A loopback endpoint for programs that do not verify a gateway themselves: receives plain HTTP, and forwards to the
// verified gateway. An instance runs it for its programs, `strongroom connect` for those of a client's machine.
// Effects: through its deps.
//
// The endpoint stores no key: it forwards the caller's Authorization or x-api-key only to the gateway, after verifying
// it.

import { isEventStream } from '../../../attest/ehbp/whole.ts'
import { messageOf } from '../../../base/fault.ts'
import type { Logger } from '../../../base/log.ts'
import { resultOr } from '../../../base/result-or.ts'
import { AttestedFetchError, ConnectionError } from '../errors.ts'
import { HOP_HEADERS } from '../request.ts'
import { pageProblem } from './page.plan.ts'
import {
  type Advice,
  type Refusal,
  refusalDocument,
  refusalEvent,
  refusalHeaders,
  refusalOf,
  retrySeconds,
} from './refusal.plan.ts'

/** The connection to one gateway. */
export type Sender = {
  /**
   * Like fetch, without redirects; buffers everything except event streams. Rejects like attestedFetch, or with
   * CertificateNameError.
   */
  readonly send: (url: URL, init: RequestInit) => Promise<Response>
  /** Closes idle connections. Running requests continue. */
  readonly close: () => void
}

export type GatewayAccess = {
  /** Address including the path of the gateway's API, usually /v1. */
  readonly baseUrl: URL
  readonly sender: Sender
}

export type EndpointDeps = {
  /** Returns access to the gateway. Throws a Fault if there is no gateway, or it is unusable. */
  readonly access: () => GatewayAccess
  readonly advice: Advice
  readonly log: Pick<Logger, 'warn'>
  /** Default: the limit with the same name. */
  readonly bodyTimeoutMs?: number
}

export const endpointLimits = {
  requestsMax: 64,
  /** At most the gateway's own limit. */
  bodyBytesMax: 32 * 1024 * 1024,
  /** Limit on the bytes received for all requests whose response has not begun. */
  heldBytesMax: 48 * 1024 * 1024,
  /** Timeout for receiving a body. Without it, a client that sends none would occupy a slot. */
  bodyTimeoutMs: 30_000,
} as const

const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'DELETE']

export class Endpoint {
  readonly #deps: EndpointDeps
  #requests = 0
  #heldBytes = 0
  /** Called when the last running request has ended; null while the endpoint serves. */
  #drained: (() => void) | null = null

  constructor(deps: EndpointDeps) {
    this.#deps = deps
  }

  /** Handles a request. Never rejects. Calls `onRead` after the request was read; the response may then take long. */
  readonly handle = async (request: Request, onRead: () => void): Promise<Response> => {
    // An invalid Host makes the address unparsable.
    const pathname = resultOr(() => new URL(request.url).pathname, '/')
    const problem = pageProblem(request.headers)
    if (problem !== null) return refused(pathname, fromPage(problem))
    if (this.#drained !== null) return refused(pathname, ending)
    if (!/^\/v1\/|^\/health$/.test(pathname)) {
      return refused(pathname, plainRefusal(404, 'not_found', 'Here are /v1/… and /health alone'))
    }
    if (!METHODS.includes(request.method)) {
      return refused(pathname, plainRefusal(405, 'invalid_request', `The method is none of ${METHODS.join(', ')}`))
    }
    if (request.headers.get('upgrade')?.toLowerCase() === 'websocket') {
      // The header is not forwarded, so the gateway would respond with 405. For 426, Codex uses HTTP at once.
      return refused(pathname, plainRefusal(426, 'upgrade_required', 'There are no WebSockets here'))
    }
    if (this.#requests >= endpointLimits.requestsMax) {
      return refused(pathname, {
        ...plainRefusal(429, 'rate_limited', `Over ${endpointLimits.requestsMax} requests at a time`),
        again: true,
      })
    }
    this.#requests += 1
    const end = once(() => {
      this.#requests -= 1
      // Wait for another turn of the event loop, in which the server receives the end of the response.
      if (this.#requests === 0 && this.#drained !== null) setImmediate(this.#drained)
    })
    try {
      const response = await this.#pass(request, onRead)
      const { log, advice } = this.#deps
      return streamed(response, { pathname, host: this.#host(), end, log, advice })
    } catch (error) {
      end()
      return this.#refuse(error, request, pathname)
    }
  }

  /** Number of requests whose response has not ended. */
  get requestCount(): number {
    return this.#requests
  }

  /** Rejects new requests. Resolves when all running ones have ended. */
  drain(): Promise<void> {
    return new Promise(resolve => {
      this.#drained = resolve
      if (this.#requests === 0) resolve()
    })
  }

  async #pass(request: Request, onRead: () => void): Promise<Response> {
    const access = this.#deps.access()
    if (Number(request.headers.get('content-length')) > endpointLimits.bodyBytesMax) throw new TooLarge()
    const held = { bytes: 0 }
    try {
      const body = request.body === null ? null : await this.#read(request.body, held)
      onRead()
      return await access.sender.send(targetOf(request, access.baseUrl), {
        method: request.method,
        headers: passedHeaders(request.headers),
        body: body === null || body.length === 0 ? null : body,
        signal: request.signal,
      })
    } finally {
      this.#heldBytes -= held.bytes
    }
  }

  /** Counts bytes as they arrive, because a Content-Length proves nothing. */
  async #read(body: ReadableStream<Uint8Array>, held: { bytes: number }): Promise<Uint8Array<ArrayBuffer>> {
    const reader = body.getReader()
    const chunks: Uint8Array[] = []
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => late.reject(new Late()), this.#deps.bodyTimeoutMs ?? endpointLimits.bodyTimeoutMs)
    try {
      for (;;) {
        const next = await Promise.race([reader.read(), late.promise])
        if (next.done) return joined(chunks, held.bytes)
        held.bytes += next.value.length
        this.#heldBytes += next.value.length
        if (held.bytes > endpointLimits.bodyBytesMax) throw new TooLarge()
        if (this.#heldBytes > endpointLimits.heldBytesMax) throw new Busy()
        chunks.push(next.value)
      }
    } catch (error) {
      void reader.cancel().catch(() => {})
      throw error
    } finally {
      clearTimeout(timer)
    }
  }

  #refuse(error: unknown, request: Request, pathname: string): Response {
    if (request.signal.aborted) return new Response(null, { status: 499 })
    const refusal = refusalFor(error, { request, host: this.#host(), advice: this.#deps.advice })
    this.#deps.log.warn('request refused', { path: pathname, code: refusal.code, reason: refusal.message })
    return refused(pathname, refusal)
  }

  #host(): string {
    try {
      return this.#deps.access().baseUrl.host
    } catch {
      return 'none'
    }
  }
}

class TooLarge extends Error {}
class Busy extends Error {}
class Late extends Error {}

type Refusing = { readonly request: Request; readonly host: string; readonly advice: Advice }

function refusalFor(error: unknown, { request, host, advice }: Refusing): Refusal {
  if (error instanceof TooLarge) {
    return plainRefusal(413, 'invalid_request', `The body is over ${endpointLimits.bodyBytesMax} bytes`)
  }
  if (error instanceof Busy) return { ...plainRefusal(429, 'rate_limited', 'Too many bodies at a time'), again: true }
  if (error instanceof Late)
    return { ...plainRefusal(408, 'invalid_request', 'The body did not arrive in time'), again: true }
  return refusalOf(error, { host, sent: request.method === 'POST' ? 'Your prompt' : 'Your request', advice })
}

function plainRefusal(status: number, code: string, what: string): Refusal {
  return { status, code, message: `${what}. What to do: change the request`, again: false }
}

function fromPage(problem: string): Refusal {
  const message = `Your request was not sent: ${problem}. What to do: call from a program, not from a web page`
  return { status: 403, code: 'web_page', message, again: false }
}

const ending: Refusal = {
  status: 503,
  code: 'ending',
  message: 'Your request was not sent: this endpoint is ending. What to do: start it again',
  again: true,
}

function refused(path: string, refusal: Refusal): Response {
  const body = JSON.stringify(refusalDocument(path, refusal))
  const { least, most } = retrySeconds
  const headers = refusalHeaders(refusal, least + Math.floor(Math.random() * (most - least + 1)))
  return new Response(body, { status: refusal.status, headers })
}

function joined(chunks: readonly Uint8Array[], sizeBytes: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(sizeBytes)
  let at = 0
  for (const chunk of chunks) {
    bytes.set(chunk, at)
    at += chunk.length
  }
  return bytes
}

/** Maps `/v1/…` below the path of the gateway's base address, which usually is /v1 itself, and `/health` beside it. */
function targetOf(request: Request, baseUrl: URL): URL {
  const { pathname, search } = new URL(request.url)
  const url = new URL(baseUrl.origin)
  url.pathname = pathname.startsWith('/v1/')
    ? `${baseUrl.pathname.replace(/\/+$/, '')}${pathname.slice('/v1'.length)}`
    : pathname
  url.search = search
  return url
}

function passedHeaders(given: Headers): Headers {
  const headers = new Headers(given)
  const named = (headers.get('connection') ?? '').split(',').map(name => name.trim().toLowerCase())
  for (const name of [...HOP_HEADERS, ...named.filter(name => /^[a-z0-9-]+$/.test(name))]) headers.delete(name)
  return headers
}

type Streaming = Pick<EndpointDeps, 'log' | 'advice'> & {
  readonly pathname: string
  readonly host: string
  readonly end: () => void
}

function ended(response: Response, end: () => void): Response {
  end()
  return withPassedHeaders(response, null)
}

/**
 * Ends an event stream that breaks off with an event that gives the reason, and any other body with a connection error.
 */
function streamed(response: Response, { pathname, host, end, log, advice }: Streaming): Response {
  const { body } = response
  if (body === null) return ended(response, end)
  const isEvents = isEventStream(response.headers.get('content-type'))
  const reader = body.getReader()
  const passed = new ReadableStream<Uint8Array>(
    {
      pull: async controller => {
        try {
          const { done, value } = await reader.read()
          if (!done) return controller.enqueue(value)
          controller.close()
          end()
        } catch (error) {
          log.warn('response broke off', { path: pathname, reason: messageOf(error) })
          if (!isEvents) {
            controller.error(error)
            return end()
          }
          const why = error instanceof AttestedFetchError ? error : new ConnectionError(messageOf(error))
          const refusal = refusalOf(why, { host, sent: 'The rest', advice })
          controller.enqueue(new TextEncoder().encode(refusalEvent(pathname, refusal)))
          controller.close()
          end()
        }
      },
      cancel: async reason => {
        end()
        await reader.cancel(reason).catch(() => {})
      },
    },
    { highWaterMark: 0 },
  )
  return withPassedHeaders(response, passed)
}

function withPassedHeaders({ status, statusText, headers }: Response, body: ReadableStream<Uint8Array> | null) {
  const passed = passedHeaders(headers)
  // The body has been decoded.
  passed.delete('content-encoding')
  // No page may read a response, even if the gateway allows its own pages to.
  for (const name of [...passed.keys()].filter(name => name.startsWith('access-control-'))) passed.delete(name)
  return new Response(body, { status, statusText, headers: passed })
}

function once(act: () => void): () => void {
  let isDone = false
  return () => {
    if (!isDone) act()
    isDone = true
  }
}
