// Responses of the gateway: errors in the contract's form (7.2), and the headers that every answer has. Pure.

import { FAULTS, Fault, type FaultCode, statusOf } from '../../base/fault.ts'
import type { GatewayError, GatewayErrorCode } from '../../contract/inference.ts'
import type { Refusal } from '../types.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import { BusyFault } from '../upstream/router.ts'

export type AnswerHeaders = Record<string, string>

/** Faults that clients may hear of, under their own name; all others are `internal`. */
const TOLD = {
  invalid_request: 'invalid_request',
  unauthenticated: 'unauthenticated',
  not_found: 'not_found',
  method_not_allowed: 'method_not_allowed',
  body_timeout: 'body_timeout',
  conflict: 'conflict',
  body_too_large: 'body_too_large',
  rate_limited: 'rate_limited',
  upstream_failed: 'upstream_failed',
  attestation_unavailable: 'attestation_unavailable',
} as const satisfies Partial<Record<FaultCode, GatewayErrorCode>>

/** What an error is for the client: a Fault with no internals in it. Upstream failures have words of our own only. */
export function toldOf(error: unknown): { status: number; code: GatewayErrorCode; message: string } {
  const told: Partial<Record<FaultCode, GatewayErrorCode>> = TOLD
  if (error instanceof Fault && error.code === 'upstream_failed' && !(error instanceof UpstreamFault)) {
    return { status: 502, code: 'upstream_failed', message: 'The upstream failed.' }
  }
  const code = error instanceof Fault ? told[error.code] : undefined
  if (!(error instanceof Fault) || code === undefined) {
    return { status: statusOf('internal'), code: 'internal', message: 'An unexpected error occurred.' }
  }
  return { status: statusOf(error.code), code, message: error.message }
}

/** Whether a client that repeats a request by itself should: the official one does on 408, 409, 429 and 5xx unless told otherwise. */
function shouldRetry(error: unknown): boolean {
  if (error instanceof UpstreamFault) return error.row.clientShouldRetry
  return error instanceof Fault && error.code === 'rate_limited'
}

export function failureAnswer(error: unknown, headers: AnswerHeaders): Response {
  const { status, code, message } = toldOf(error)
  const all: AnswerHeaders = { ...headers, 'x-should-retry': String(shouldRetry(error)) }
  if (status === 401) all['www-authenticate'] = 'Bearer'
  if (error instanceof BusyFault) all['retry-after'] = String(error.retryAfterSeconds)
  // The rest of a body that was given up on is not worth reading.
  if (status === 413 || status === 408) all.connection = 'close'
  return jsonAnswer({ error: { code, message } } satisfies GatewayError, status, all)
}

export function refusalAnswer(refusal: Refusal, headers: AnswerHeaders): Response {
  return failureAnswer(new Fault('rate_limited', refusal.message), {
    ...headers,
    ...refusal.headers,
    'retry-after': String(refusal.retryAfterSeconds),
  })
}

export function jsonAnswer(body: unknown, status: number, headers: AnswerHeaders): Response {
  return textAnswer(JSON.stringify(body), status, headers)
}

export function textAnswer(json: string, status: number, headers: AnswerHeaders): Response {
  return new Response(json, { status, headers: { ...headers, 'content-type': 'application/json' } })
}

/** Headers of every answer to a request. */
export function commonHeaders(requestId: string): AnswerHeaders {
  return { 'x-request-id': requestId, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }
}

/** Whether a failure is ours or an upstream's, and so worth a line in the log. */
export function isOurs(error: unknown): boolean {
  return !(error instanceof Fault) || FAULTS[error.code].wire === 'internal_error'
}
