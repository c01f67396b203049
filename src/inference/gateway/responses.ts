// Responses of the gateway: errors in the contract's form (7.2), and the headers that every response has. Pure.

import { FAULTS, Fault, type FaultCode, statusOf } from '../../base/fault.ts'
import type { GatewayError, GatewayErrorCode } from '../../contract/inference.ts'
import type { Refusal } from '../types.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import { BusyFault } from '../upstream/router.ts'

export type ResponseHeaders = Record<string, string>

/** Faults that clients see under their own code; all others are `internal`. */
const PUBLIC_CODES = [
  'invalid_request',
  'unauthenticated',
  'not_found',
  'method_not_allowed',
  'body_timeout',
  'conflict',
  'body_too_large',
  'rate_limited',
  'upstream_failed',
  'attestation_unavailable',
] as const satisfies readonly (FaultCode & GatewayErrorCode)[]

type PublicError = { readonly status: number; readonly code: GatewayErrorCode; readonly message: string }

/** What a client sees of an error: nothing internal, and no words of an upstream. */
export function publicErrorOf(error: unknown): PublicError {
  const code = error instanceof Fault ? PUBLIC_CODES.find(one => one === error.code) : undefined
  if (!(error instanceof Fault) || code === undefined) {
    return { status: statusOf('internal'), code: 'internal', message: 'An unexpected error occurred.' }
  }
  if (code === 'upstream_failed' && !(error instanceof UpstreamFault)) {
    return { status: statusOf(code), code, message: 'The upstream failed.' }
  }
  return { status: statusOf(code), code, message: error.message }
}

/** `x-should-retry`: without it OpenAI's client retries 408, 409, 429 and 5xx by itself. */
function shouldRetry(error: unknown): boolean {
  if (error instanceof UpstreamFault) return error.row.clientShouldRetry
  return error instanceof Fault && error.code === 'rate_limited'
}

export function errorResponse(error: unknown, headers: ResponseHeaders): Response {
  const { status, code, message } = publicErrorOf(error)
  const all: ResponseHeaders = { ...headers, 'x-should-retry': String(shouldRetry(error)) }
  if (status === 401) all['www-authenticate'] = 'Bearer'
  if (error instanceof BusyFault) all['retry-after'] = String(error.retryAfterSeconds)
  // The rest of the body is not read, so no other request can follow it.
  if (status === 413 || status === 408) all.connection = 'close'
  return jsonResponse({ error: { code, message } } satisfies GatewayError, status, all)
}

export function refusalResponse(refusal: Refusal, headers: ResponseHeaders): Response {
  return errorResponse(new Fault('rate_limited', refusal.message), {
    ...headers,
    ...refusal.headers,
    'retry-after': String(refusal.retryAfterSeconds),
  })
}

export function jsonResponse(body: unknown, status: number, headers: ResponseHeaders): Response {
  return jsonTextResponse(JSON.stringify(body), status, headers)
}

export function jsonTextResponse(json: string, status: number, headers: ResponseHeaders): Response {
  return new Response(json, { status, headers: { ...headers, 'content-type': 'application/json' } })
}

export function commonHeaders(requestId: string): ResponseHeaders {
  return { 'x-request-id': requestId, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }
}

/** Whether the gateway or an upstream has failed, not the client; such failures are logged. */
export function isServerFailure(error: unknown): boolean {
  return !(error instanceof Fault) || FAULTS[error.code].wire === 'internal_error'
}
