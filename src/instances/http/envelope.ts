// One request and the envelope of its answer (contract 2.1). Pure but for drawing the request id.

import { fromUtf8 } from '../../base/bytes.ts'
import { FAULTS, Fault, statusOf } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { FailureEnvelope, Problem } from '../../contract/problem.ts'

/** What the server knows of a request while it is under way. */
export type Exchange = {
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

export function openExchange(request: Request, deps: { random: RandomBytes; monotonicMs: () => number }): Exchange {
  return {
    requestId: `req_${randomName(24, deps.random)}`,
    correlation: request.headers.get('x-correlation-id'),
    method: request.method,
    startedMs: deps.monotonicMs(),
    organization: null,
    template: null,
  }
}

export function success(exchange: Exchange, status: number, data: unknown): Response {
  return Response.json({ ...ids(exchange), data }, { status })
}

/** Anything thrown, as its envelope. What is not a Fault of the caller's making shows nothing of itself. */
export function failure(exchange: Exchange, error: unknown, headers: Record<string, string> = {}): Response {
  const problem = problemOf(error)
  const status = error instanceof Fault ? statusOf(error.code) : 500
  const response = Response.json({ ...ids(exchange), error: problem } satisfies FailureEnvelope, { status, headers })
  if (problem.code === 'unauthenticated') response.headers.set('WWW-Authenticate', 'Bearer')
  // The rest of a body that was given up on is not worth reading.
  if (status === 413 || status === 408) response.headers.set('Connection', 'close')
  return response
}

/** Headers that every answer carries, whatever it is. */
export function stamp(exchange: Exchange, response: Response): Response {
  response.headers.set('X-Request-ID', exchange.requestId)
  response.headers.set('Cache-Control', 'no-store')
  response.headers.set('X-Content-Type-Options', 'nosniff')
  if (exchange.correlation !== null && isEchoable(exchange.correlation)) {
    response.headers.set('X-Correlation-ID', exchange.correlation)
  }
  return response
}

/** Whether a failure is ours: to be logged in full, and told to nobody. */
export function isInternal(error: unknown): boolean {
  return !(error instanceof Fault) || FAULTS[error.code].wire === 'internal_error'
}

function problemOf(error: unknown): Problem {
  if (!(error instanceof Fault) || isInternal(error)) {
    return { code: 'internal_error', message: 'An unexpected error occurred.' }
  }
  const { wire } = FAULTS[error.code]
  return { code: wire, message: error.message, ...(error.param === undefined ? {} : { param: error.param }) }
}

function ids(exchange: Exchange) {
  return { request_id: exchange.requestId, correlation_id: readable(exchange.correlation) }
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
