// The client of the upstreams, OpenAI-compatible servers; connections are kept for the next request. Effects: network.
//
// No header of the client is sent to an upstream, and no text of an upstream's failure reaches a client.

import { onAbort } from '../../base/clock.ts'
import type { Fault } from '../../base/fault.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { createCooperativeQueue, type Turns } from '../../base/work/turns.ts'
import type { BodyLimits } from '../../http/body.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { refusalFault } from '../refusal.ts'
import { type Connecting, connect } from './connect.ts'
import type { Connection, UpstreamResponse } from './connection.ts'
import { IdleProbe } from './idle-probe.ts'
import { gaugeSum, WAITING_GAUGES } from './queue.ts'
import { type Endpoint, endpointOf, type UpstreamTarget } from './target.ts'

/** `firstByteMs`: 0 for no limit. */
export type UpstreamTimeouts = { readonly connectMs: number; readonly firstByteMs: number }

/** One request to one upstream. Aborted when the client leaves, by a deadline or a failure. */
export type Attempt = {
  readonly abort: () => void
  /** Replaces the listener of aborts. Calls it immediately if the signal is already aborted. */
  readonly onAbort: (listener: () => void) => void
}

export type UpstreamRequest = {
  /** Appended to the target's base path. */
  readonly path: string
  /** JSON; in pieces if it is large. */
  readonly body: string | readonly Uint8Array[]
  readonly stream: boolean
  /** Value of the header of that name (W3C Trace Context); null or absent if there is none. */
  readonly traceparent?: string | null
  readonly attempt: Attempt
  /** Called once the request is written to a connection. */
  readonly onSent?: (() => void) | null
}

export type UpstreamClientDeps = { readonly deadlines: Deadlines; readonly timeouts: UpstreamTimeouts }

const probeTimeoutMs = 5_000
/** Bound of an upstream's error body, enough for every engine. */
const refusalBytesMax = 65_536
const refusalTimeoutMs = 2_000
const retryAfterSecondsMax = 600
/** Largest part of an engine's metrics that is read. */
const metricsBytesMax = 524_288
/** Limit from the start of connecting to the last byte, because the head of a stream waits for it. */
const metricsTimeoutMs = 300
/** How long the length of an engine's queue is cached, so that all waiting requests share one read. */
const waitingCachedMs = 5_000
/**
 * Idle connections that are kept for one target.
 * No share: without an idle connection a new one is opened.
 */
const idleMax = 256

export function probePath({ engine }: Pick<UpstreamTarget, 'engine'>): string {
  return engine === 'text-embeddings-inference' ? '/health' : '/models'
}

export function openAttempt(): Attempt {
  let isAborted = false
  let listener: (() => void) | null = null
  return {
    abort: () => {
      if (isAborted) return
      isAborted = true
      listener?.()
    },
    onAbort: next => {
      listener = next
      if (isAborted) next()
    },
  }
}

/** A target's idle connections, and values computed once from its configuration. */
type Pool = {
  /** Changes with the attested key, and `idle` with it, because a connection to another key must carry nothing more. */
  endpoint: Endpoint
  idle: Connection[]
  /** Engine metrics by path. */
  readonly heads: Readonly<Record<Accept, Map<string, string>>>
  /** The key contained in these heads. */
  headsKey: string | null
}

type Accept = 'text/event-stream' | 'application/json'

/** `base`: part of the target's base path to leave out. */
type Get = {
  readonly path: string
  readonly accept: string
  readonly timeoutMs: number
  readonly base?: string | RegExp
}

/**
 * `timeoutMs`: until the response's head; 0 for no limit. `accept`: content type that the response must have, with
 * status 200; null for any response.
 */
type SendOptions = Pick<UpstreamRequest, 'attempt' | 'onSent'> & {
  readonly timeoutMs: number
  readonly accept: Accept | null
}

export class UpstreamClient {
  readonly #deadlines: Deadlines
  readonly #timeouts: UpstreamTimeouts
  readonly #pools = new Map<UpstreamTarget, Pool>()
  readonly #probe = new IdleProbe()
  readonly #waiting = new Map<UpstreamTarget, Promise<number | null>>()
  #isClosed = false

  constructor({ deadlines, timeouts }: UpstreamClientDeps) {
    this.#deadlines = deadlines
    this.#timeouts = timeouts
  }

  /**
   * Sends a request. Resolves with status 200 and the right content type. Throws UpstreamFault; BusyFault; Fault
   * invalid_request or context_length_exceeded if the upstream refuses the request. Not async, because every request
   * waits here: throws UpstreamFault unattested at once.
   */
  send(
    target: UpstreamTarget,
    { path, body, stream, traceparent = null, attempt, onSent = null }: UpstreamRequest,
  ): Promise<UpstreamResponse> {
    const pool = this.#poolOf(target)
    const accept = stream ? 'text/event-stream' : 'application/json'
    if (pool.headsKey !== target.key) {
      // The upstream's key may change while the gateway runs.
      for (const all of Object.values(pool.heads)) all.clear()
      pool.headsKey = target.key
    }
    const heads = pool.heads[accept]
    const head = heads.get(path) ?? postHead(target, pool.endpoint, { path, accept })
    if (!heads.has(path)) heads.set(path, head)
    const trace = traceparent === null ? '' : `traceparent: ${traceparent}\r\n`
    const headOf = (lengthBytes: number) => `${head}${lengthBytes}\r\n${trace}\r\n`
    const options = { attempt, timeoutMs: this.#timeouts.firstByteMs, onSent, accept } as const
    if (typeof body === 'string') return this.#sendPooled(pool, headOf(Buffer.byteLength(body)) + body, options)
    return this.#sendPieces(pool, [Buffer.from(headOf(lengthOf(body))), ...body], options)
  }

  async #sendPieces(pool: Pool, pieces: readonly Uint8Array[], options: SendOptions): Promise<UpstreamResponse> {
    return await this.#sendPooled(pool, await inTurns(joined(pieces)), options)
  }

  /** Returns a response that may be read; rejects with the fault of any other, whose connection is closed. */
  #checked(response: UpstreamResponse, accept: Accept): UpstreamResponse | Promise<UpstreamResponse> {
    if (hasReason(response)) return this.#refusal(response).then(fault => refuse(response, fault))
    const fault = headFault(response, accept)
    return fault === null ? response : refuse(response, fault)
  }

  /** Reads the engine's reason. None of its text reaches the client. */
  async #refusal(response: UpstreamResponse): Promise<Fault> {
    const text = await this.#textOf(response, { bytesMax: refusalBytesMax, timeoutMs: refusalTimeoutMs })
    return refusalFault(response.head.status, text)
  }

  /** Returns the first part of a body. Never rejects, because a part may be enough. */
  async #textOf(response: UpstreamResponse, { bytesMax, timeoutMs }: BodyLimits): Promise<string> {
    const cancelTimeout = this.#deadlines.after(timeoutMs, response.abort)
    const chunks: Uint8Array[] = []
    let left = bytesMax
    try {
      for (let bytes = await response.read(); bytes !== null && left > 0; bytes = await response.read()) {
        chunks.push(bytes.subarray(0, left))
        left -= bytes.length
      }
    } catch {
      // The partial text is enough, or no reason is known.
    } finally {
      cancelTimeout()
    }
    return Buffer.concat(chunks).toString('utf8')
  }

  /** Returns the number of requests that wait inside the engine; null if it does not report them. */
  waiting(target: UpstreamTarget): Promise<number | null> {
    const known = this.#waiting.get(target)
    if (known !== undefined) return known
    const count = this.#readWaiting(target, WAITING_GAUGES[target.engine]).catch(() => null)
    this.#waiting.set(target, count)
    this.#deadlines.after(waitingCachedMs, () => this.#waiting.delete(target))
    return count
  }

  async #readWaiting(target: UpstreamTarget, gauge: string | undefined): Promise<number | null> {
    if (gauge === undefined) return null
    const limits = { bytesMax: metricsBytesMax, timeoutMs: metricsTimeoutMs }
    const attempt = openAttempt()
    const cancelTimeout = this.#deadlines.after(metricsTimeoutMs, attempt.abort)
    // Metrics are beside /v1, not below it.
    const get = { path: '/metrics', accept: '*/*', timeoutMs: 0, base: /\/v1$/ }
    const read = async (response: UpstreamResponse) =>
      response.head.status === 200 ? gaugeSum(await this.#textOf(response, limits), gauge) : null
    return await this.#get(target, get, attempt, read).finally(cancelTimeout)
  }

  /** Requests the list of models, or the health if there is no list. Returns the status, or null without an answer. */
  async probe(target: UpstreamTarget, signal: AbortSignal): Promise<number | null> {
    const attempt = openAttempt()
    const forget = onAbort(signal, attempt.abort)
    const get = { path: probePath(target), accept: 'application/json', timeoutMs: probeTimeoutMs }
    return await this.#get(target, get, attempt, async ({ head }) => head.status).finally(forget)
  }

  /** Makes one GET request on a separate connection, which never carries a prompt. Null without a response. */
  async #get<T>(
    target: UpstreamTarget,
    { path, accept, timeoutMs, base = '' }: Get,
    attempt: Attempt,
    read: (response: UpstreamResponse) => Promise<T>,
  ): Promise<T | null> {
    const { endpoint } = this.#poolOf(target)
    const basePath = endpoint.basePath.replace(base, '')
    const lead = requestLead(target, { ...endpoint, basePath }, { method: 'GET', path })
    const connection = await openConnection(this.#connect(endpoint, []), attempt)
    try {
      const bytes = Buffer.from(`${lead}accept: ${accept}\r\n\r\n`)
      const response = await (this.#sendOn(connection, bytes, { attempt, timeoutMs, accept: null }) ?? null)
      return response === null ? null : await read(response)
    } finally {
      connection.close()
    }
  }

  /** Closes idle connections; those in use are closed when their response is complete. */
  close(): void {
    this.#isClosed = true
    for (const { idle } of this.#pools.values()) for (const connection of [...idle]) connection.close()
  }

  #poolOf(target: UpstreamTarget): Pool {
    // Nothing, neither prompt nor key, is sent to an upstream that must show evidence and has not.
    if (target.attestedKey === null) throw new UpstreamFault('unattested')
    const known = this.#pools.get(target)
    if (known !== undefined) return this.#withKey(known, target)
    const heads = { 'text/event-stream': new Map(), 'application/json': new Map() }
    const pool: Pool = { endpoint: endpointOf(target), idle: [], heads, headsKey: target.key }
    this.#pools.set(target, pool)
    return pool
  }

  #withKey(pool: Pool, target: UpstreamTarget): Pool {
    if (pool.endpoint.attestedKey === (target.attestedKey ?? null)) return pool
    for (const connection of [...pool.idle]) connection.close()
    pool.endpoint = endpointOf(target)
    pool.idle = []
    return pool
  }

  #connect(endpoint: Endpoint, idle: Connection[]): Connecting {
    return connect(endpoint, {
      deadlines: this.#deadlines,
      connectTimeoutMs: this.#timeouts.connectMs,
      onIdle: connection => {
        if (this.#isClosed || idle.length >= idleMax) connection.close()
        else idle.push(connection)
      },
      onClose: connection => {
        const at = idle.lastIndexOf(connection)
        if (at >= 0) idle.splice(at, 1)
      },
    })
  }

  /**
   * Sends the request on an open idle connection, or else on a new one. A request is written only once, because the
   * upstream may already work on it, which costs money. The caller decides on another upstream.
   */
  #sendPooled(pool: Pool, request: Buffer | string, options: SendOptions): Promise<UpstreamResponse> {
    const { idle } = pool
    for (let kept = idle.at(-1); kept !== undefined; kept = idle.at(-1)) {
      if (this.#probe.hasUnread(idle)) return this.#sendAfterNews(pool, request, options)
      idle.pop()
      const sent = this.#sendOn(kept, request, options)
      if (sent !== null) return sent
    }
    return this.#sendNew(pool, request, options)
  }

  /** Connections that the peer has closed leave the pool once the event loop learns of it. */
  async #sendAfterNews(
    { endpoint, idle }: Pool,
    request: Buffer | string,
    options: SendOptions,
  ): Promise<UpstreamResponse> {
    await newsOfSockets()
    for (let kept = idle.pop(); kept !== undefined; kept = idle.pop()) {
      const sent = this.#sendOn(kept, request, options)
      if (sent !== null) return await sent
    }
    return await this.#sendNew({ endpoint, idle }, request, options)
  }

  async #sendNew(
    { endpoint, idle }: Pick<Pool, 'endpoint' | 'idle'>,
    request: Buffer | string,
    options: SendOptions,
  ): Promise<UpstreamResponse> {
    const connection = await openConnection(this.#connect(endpoint, idle), options.attempt)
    const sent = this.#sendOn(connection, request, options)
    if (sent === null) throw new UpstreamFault('unreachable')
    return await sent
  }

  /** Sends the request. Null if the connection is closed before any byte was sent. */
  #sendOn(connection: Connection, request: Buffer | string, options: SendOptions): Promise<UpstreamResponse> | null {
    options.attempt.onAbort(() => connection.close())
    const pending = connection.send(request)
    if (pending === null) return null
    options.onSent?.()
    return this.#headOf(pending, options)
  }

  /** Waits for the head. Not async, because every request waits here. */
  #headOf(pending: Promise<UpstreamResponse>, { attempt, timeoutMs, accept }: SendOptions): Promise<UpstreamResponse> {
    let isLate = false
    const late = () => {
      isLate = true
      attempt.abort()
    }
    const cancelTimeout = timeoutMs === 0 ? null : this.#deadlines.after(timeoutMs, late)
    return pending.then(
      response => {
        cancelTimeout?.()
        attempt.onAbort(response.abort)
        return accept === null ? response : this.#checked(response, accept)
      },
      error => {
        cancelTimeout?.()
        throw isLate ? new UpstreamFault('first_byte_timeout') : error
      },
    )
  }
}

/** Waits for two turns of the event loop, which poll every socket in between. */
async function newsOfSockets(): Promise<void> {
  for (let turn = 0; turn < 2; turn += 1) await new Promise<void>(resolve => setImmediate(resolve))
}

function openConnection(connecting: Connecting, attempt: Attempt): Promise<Connection> {
  attempt.onAbort(connecting.stop)
  return connecting.opened
}

/** Returns a POST's head up to the length of its body. */
function postHead(
  target: UpstreamTarget,
  endpoint: Endpoint,
  { path, accept }: { path: string; accept: string },
): string {
  const lead = requestLead(target, endpoint, { method: 'POST', path })
  // llama-server closes its side after a stream without announcing it, which would lose the next request. With this
  // header it announces it.
  const end = target.engine === 'llama-server' && accept === 'text/event-stream' ? 'connection: close\r\n' : ''
  return `${lead}accept: ${accept}\r\n${end}content-type: application/json\r\ncontent-length: `
}

/** Returns the request line and the fields that all requests have. */
function requestLead(
  target: UpstreamTarget,
  { host, basePath }: Endpoint,
  { method, path }: { method: 'GET' | 'POST'; path: string },
): string {
  const lines = [
    `${method} ${basePath}${path} HTTP/1.1`,
    `host: ${host}`,
    // A compressed response would have to be expanded, within additional limits.
    'accept-encoding: identity',
    'user-agent: strongroom',
    ...(target.key === null ? [] : [`authorization: Bearer ${target.key}`]),
  ]
  return `${lines.join('\r\n')}\r\n`
}

const inTurns = createCooperativeQueue()

/** Maximum number of bytes copied between two turns of the event loop. */
const copiedPerTurn = 1_048_576

function* joined(pieces: readonly Uint8Array[]): Turns<Buffer> {
  const all = Buffer.allocUnsafe(lengthOf(pieces))
  let end = 0
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += copiedPerTurn) {
      const part = piece.subarray(at, at + copiedPerTurn)
      all.set(part, end)
      end += part.length
      if (part.length === copiedPerTurn) yield
    }
  }
  return all
}

function lengthOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0)
}

function refuse(response: UpstreamResponse, fault: Fault): never {
  response.abort()
  throw fault
}

const STATUSES_WITH_REASON: readonly number[] = [400, 413, 422, 500]

/** Reports whether the body of the response contains the engine's reason. */
function hasReason({ head: { status, retryAfterSeconds } }: UpstreamResponse): boolean {
  return STATUSES_WITH_REASON.includes(status) || (status === 503 && retryAfterSeconds === null)
}

/** Returns the fault of a response; null if it may be read. */
function headFault({ head }: UpstreamResponse, accept: string): Fault | null {
  const { status, contentType, contentEncoding, retryAfterSeconds } = head
  if (status === 401 || status === 403) return new UpstreamFault('credentials')
  // llama-server returns 501 for an endpoint that it was started without.
  if (status === 404 || status === 501) return new UpstreamFault('no_such_route')
  if (status === 429 || (status === 503 && retryAfterSeconds !== null)) {
    const seconds = Math.min(Math.max(retryAfterSeconds ?? 1, 1), retryAfterSecondsMax)
    return new BusyFault('The upstream of this model has reached a limit.', seconds)
  }
  if (status !== 200) return new UpstreamFault('status')
  if (contentType !== accept) return new UpstreamFault('content_type')
  if (contentEncoding !== '' && contentEncoding !== 'identity') return new UpstreamFault('content_type')
  return null
}
