// Responses of the gateway: errors in the contract's form (7.2), and the headers that every response has. Pure.

import { Fault, statusOf } from '../../base/fault.ts'
import { GATEWAY_PUBLIC_CODES, type GatewayError, type GatewayErrorCode } from '../../contract/inference.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'
import type { Refusal } from '../types.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import { BusyFault } from '../upstream/router.ts'

export type ResponseHeaders = Record<string, string>

type PublicError = { readonly status: number; readonly code: GatewayErrorCode; readonly message: string }

/** What a client sees of an error: nothing internal, and no words of an upstream. */
export function publicErrorOf(error: unknown): PublicError {
  const code = error instanceof Fault ? GATEWAY_PUBLIC_CODES.find(one => one === error.code) : undefined
  if (!(error instanceof Fault) || code === undefined) {
    return { status: statusOf('internal'), code: 'internal', message: internalErrorMessage }
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
  const all: ResponseHeaders = { ...headers, ...failureHeaders(status), 'x-should-retry': String(shouldRetry(error)) }
  if (error instanceof BusyFault) all['retry-after'] = String(error.retryAfterSeconds)
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
export const isServerFailure = isInternal
