// A request under way and the envelope of its response (contract 2.1). Pure but for drawing the request id.

import { fromUtf8 } from '../../base/bytes.ts'
import { FAULTS, Fault, statusOf } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { FailureEnvelope, Problem } from '../../contract/http/problem.ts'
import { retryAfterOf, UnavailableFault } from '../../http/limited.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'

/** What the server knows of a request while it is under way. */
export type RequestContext = {
  readonly requestId: string
  /** X-Correlation-ID as Bun gives it, one character per byte; null when there was none. */
  readonly correlation: string | null
  readonly method: string
  readonly startedMs: number
  /** Slug, once the caller is known. */
  organization: string | null
  /** Path template such as `/v1/instances/:name`; the path itself is never logged. */
  template: string | null
}

export function openContext(
  request: Request,
  deps: { random: RandomBytes; monotonicMs: () => number },
): RequestContext {
  return {
    requestId: `req_${randomName(24, deps.random)}`,
    correlation: request.headers.get('x-correlation-id'),
    method: request.method,
    startedMs: deps.monotonicMs(),
    organization: null,
    template: null,
  }
}

/** What a route has to say beside `data`. */
export class Reply {
  readonly data: unknown
  readonly headers: Readonly<Record<string, string>>

  constructor(data: unknown, headers: Readonly<Record<string, string>>) {
    this.data = data
    this.headers = headers
  }
}

/** `data` that is JSON text already. */
export class JsonText {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

export function successResponse(context: RequestContext, status: number, said: unknown): Response {
  const { data, headers: own } = said instanceof Reply ? said : new Reply(said, {})
  if (!(data instanceof JsonText)) return Response.json({ ...ids(context), data }, { status, headers: own })
  const head = JSON.stringify(ids(context)).slice(0, -1)
  const headers = { ...own, 'Content-Type': 'application/json;charset=utf-8' }
  return new Response(`${head},"data":${data.text}}`, { status, headers })
}

/** Anything thrown, as its envelope. What is not a Fault of the caller's making shows nothing of itself. */
export function failureResponse(
  context: RequestContext,
  error: unknown,
  headers: Record<string, string> = {},
): Response {
  const problem = problemOf(error)
  const status = error instanceof Fault ? statusOf(error.code) : 500
  return Response.json({ ...ids(context), error: problem } satisfies FailureEnvelope, {
    status,
    headers: { ...headers, ...retryAfter(error), ...failureHeaders(status) },
  })
}

function retryAfter(error: unknown): Record<string, string> {
  const seconds = retryAfterOf(error)
  return seconds === null ? {} : { 'Retry-After': String(seconds) }
}

/** Headers that every response carries, whatever it is. */
export function stamp(context: RequestContext, response: Response): Response {
  response.headers.set('X-Request-ID', context.requestId)
  response.headers.set('Cache-Control', 'no-store')
  response.headers.set('X-Content-Type-Options', 'nosniff')
  if (context.correlation !== null && isEchoable(context.correlation)) {
    response.headers.set('X-Correlation-ID', context.correlation)
  }
  return response
}

/** Whether a failure is ours, and nothing that is said to the client as it is. */
export function isUnexpected(error: unknown): boolean {
  return isInternal(error) && !(error instanceof UnavailableFault)
}

function problemOf(error: unknown): Problem {
  if (!(error instanceof Fault) || isUnexpected(error)) {
    return { code: 'internal_error', message: internalErrorMessage }
  }
  const { wire } = FAULTS[error.code]
  return { code: wire, message: error.message, ...(error.param === undefined ? {} : { param: error.param }) }
}

function ids(context: RequestContext) {
  return { request_id: context.requestId, correlation_id: readable(context.correlation) }
}

/** Field values of RFC 9110 5.5: visible, space, tab, and bytes from 0x80. Anything else could end the line. */
function isEchoable(value: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value)
}

/** Bytes that are UTF-8 are shown as such, others as Latin-1. */
function readable(correlation: string | null): string | null {
  if (correlation === null || /^[\x00-\x7f]*$/.test(correlation)) return correlation
  try {
    return fromUtf8(Buffer.from(correlation, 'latin1'))
  } catch {
    return correlation
  }
}
