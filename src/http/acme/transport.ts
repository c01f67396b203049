// HTTP to one ACME server, which may be hostile: one origin, no redirects, bounded bodies, bounded time, so many
// requests an order. Effects: the network.
//
// acme-client sends by axios, and offers its adapter as the place for a transport. The process has one adapter, so the
// conversation is found by the asynchronous context.

import { AsyncLocalStorage } from 'node:async_hooks'
import { type Clock, pause } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { harmlessLine } from '../../base/harmless.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'

/** Why an order failed. `type`: of the problem document (RFC 8555 6.7); null if the server gave none. */
export class AcmeFailure extends Error {
  readonly type: string | null
  readonly retryAfterMs: number | null

  constructor(detail: string, { type, retryAfterMs }: { type: string | null; retryAfterMs: number | null }) {
    super(harmlessLine(detail).slice(0, detailCharsMax))
    this.type = type === null ? null : harmlessLine(type).slice(0, typeCharsMax)
    this.retryAfterMs = retryAfterMs
  }
}

export type AcmeServer = {
  /** Origin of the directory: every request goes there. */
  readonly origin: string
  /** PEM; undefined: the authorities of the system. */
  readonly ca: string | undefined
  readonly outgoing: Outgoing
  readonly clock: Clock
}

const detailCharsMax = 512
const typeCharsMax = 128
const requestTimeoutMs = 20_000
const responseBytesMax = 262_144
/** No share: limits one order. */
const requestsMax = 120
/** Longest wait that the server may ask for between two questions about one order. */
const pollMsMax = 30_000

type Conversation = AcmeServer & {
  readonly signal: AbortSignal
  requests: number
  /** The newest problem document, and the newest wish. */
  problem: { readonly type: string | null; readonly detail: string } | null
  retryAfterMs: number | null
}

const conversations = new AsyncLocalStorage<Conversation>()

/** Runs `work`, whose requests go to `server`. Rejects with an AcmeFailure. */
export async function converse<T>(
  server: AcmeServer,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
  work: () => Promise<T>,
): Promise<T> {
  const ended = new AbortController()
  const late = AbortSignal.any([signal, ended.signal])
  const conversation: Conversation = { ...server, signal: late, requests: 0, problem: null, retryAfterMs: null }
  const timer = setTimeout(() => ended.abort(new Error(`not done within ${timeoutMs / 1000} s`)), timeoutMs)
  const over = Promise.withResolvers<never>()
  late.addEventListener('abort', () => over.reject(late.reason), { once: true })
  over.promise.catch(() => {})
  try {
    return await Promise.race([conversations.run(conversation, work), over.promise])
  } catch (error) {
    if (error instanceof AcmeFailure) throw error
    const { problem, retryAfterMs } = conversation
    const detail = problem === null ? messageOf(error) : problem.detail
    throw new AcmeFailure(detail, { type: problem?.type ?? null, retryAfterMs })
  } finally {
    clearTimeout(timer)
    // Work that is left ends with its next request.
    ended.abort(new Error('the order is over'))
  }
}

/** A request of axios, as far as acme-client uses it. */
type AdapterRequest = {
  readonly url?: string | undefined
  readonly method?: string | undefined
  readonly data?: unknown
  readonly headers: { readonly toJSON?: () => unknown }
}
type AdapterResponse<Request> = {
  readonly data: string
  readonly status: number
  readonly statusText: string
  readonly headers: Record<string, string>
  readonly config: Request
}

/** The adapter. Every status is a response; acme-client judges it. */
export async function send<Request extends AdapterRequest>(request: Request): Promise<AdapterResponse<Request>> {
  const conversation = conversations.getStore()
  if (conversation === undefined) throw new Error('invariant broken: a request outside of an order')
  const { origin, ca, clock, signal, outgoing } = conversation
  const url = parseUrl(request.url ?? '')
  if (url.origin !== origin) {
    throw new Error(`the ACME server refers to ${url.origin}, but only ${origin} is used`)
  }
  conversation.requests += 1
  if (conversation.requests > requestsMax) throw new Error(`the order took more than ${requestsMax} requests`)
  const method = (request.method ?? 'get').toUpperCase()
  const waitMs = conversation.problem === null ? Math.min(conversation.retryAfterMs ?? 0, pollMsMax) : 0
  conversation.retryAfterMs = null
  if (waitMs > 0) await pause(clock, waitMs, signal)
  signal.throwIfAborted()
  const response = await outgoing(url, {
    method,
    headers: { 'Content-Type': 'application/jose+json', 'User-Agent': 'strongroom', 'Accept-Language': 'en' },
    signal: AbortSignal.any([signal, AbortSignal.timeout(requestTimeoutMs)]),
    ...(typeof request.data === 'string' ? { body: request.data } : {}),
    ...(ca === undefined ? {} : { tls: { ca } }),
  })
  const data = method === 'HEAD' ? '' : await boundedText(response)
  const headers = Object.fromEntries(response.headers)
  conversation.retryAfterMs = retryAfterOf(headers['retry-after'], clock.nowMs())
  conversation.problem = problemOf(data)
  if (response.status >= 300 && response.status < 400) throw new Error(`the ACME server redirects (${response.status})`)
  if (response.status >= 400 && conversation.problem === null) {
    conversation.problem = { type: null, detail: `the ACME server answers with status ${response.status}` }
  }
  return { data, status: response.status, statusText: response.statusText, headers, config: request }
}

function parseUrl(text: string): URL {
  if (!URL.canParse(text)) throw new Error('the ACME server names something that is no URL')
  return new URL(text)
}

async function boundedText(response: Response): Promise<string> {
  const pieces: Uint8Array[] = []
  let bytes = 0
  for await (const piece of response.body ?? []) {
    bytes += piece.length
    if (bytes > responseBytesMax) throw new Error(`the ACME server sends more than ${responseBytesMax} bytes`)
    pieces.push(piece)
  }
  return Buffer.concat(pieces).toString('utf8')
}

/** RFC 9110 10.2.3: seconds or a date. Null for any other value. */
export function retryAfterOf(value: string | undefined, nowMs: number): number | null {
  if (value === undefined) return null
  if (/^[0-9]{1,9}$/.test(value)) return Number(value) * 1000
  const atMs = Date.parse(value)
  return Number.isNaN(atMs) ? null : Math.max(0, atMs - nowMs)
}

/** A problem document, or the one in a failed order, authorization or challenge. Null if there is none. */
export function problemOf(text: string): { type: string | null; detail: string } | null {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return null
  }
  const document = fieldOf(value, 'error') ?? value
  const type = fieldOf(document, 'type')
  const detail = fieldOf(document, 'detail')
  if (typeof detail !== 'string' || (typeof type === 'string' && !type.startsWith('urn:'))) return null
  return { type: typeof type === 'string' ? type : null, detail }
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
}
