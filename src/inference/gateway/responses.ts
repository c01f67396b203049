// Responses of the gateway: errors in the contract's form (7.2), and the headers that every response has. Pure.

import { keyConfigProblemOf } from '../../attest/ehbp/key-config.ts'
import { keyConfigProblem } from '../../attest/ehbp/protocol.ts'
import { Fault, statusOf } from '../../base/fault.ts'
import { GATEWAY_PUBLIC_CODES, type GatewayErrorCode, gatewayError } from '../../contract/http/gateway-error.ts'
import type { GatewayError } from '../../contract/http/inference.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { BudgetFault, soonSeconds } from '../metering/budgets.ts'
import type { Dialect } from '../openai/dialect.ts'
import type { Refusal } from '../types.ts'
import type { GatewayProblem } from './openapi/gateway-problem.ts'
import { createSameNamed } from './same-named.ts'

export type ResponseHeaders = Record<string, string>

/** Status for a spent budget. After a 429 Codex does not show the message, and opencode waits first. */
export const spentStatus = 402

type PublicError = {
  readonly status: number
  readonly code: GatewayErrorCode
  readonly message: string
  /** The field that is wrong; null if the error is not about one. */
  readonly param: string | null
}

/** Returns the error as a client sees it: no internals, no text of an upstream. */
export function publicErrorOf(error: unknown): PublicError {
  const code = error instanceof Fault ? GATEWAY_PUBLIC_CODES.find(kind => kind === error.code) : undefined
  if (!(error instanceof Fault) || code === undefined) {
    return { status: statusOf('internal'), code: 'internal', message: internalErrorMessage, param: null }
  }
  if (code === 'upstream_failed' && !(error instanceof UpstreamFault)) {
    return { status: statusOf(code), code, message: 'The upstream failed.', param: null }
  }
  const status = error instanceof BudgetFault && !error.mayFitSoon ? spentStatus : statusOf(code)
  const soon = error instanceof BusyFault ? ` Retry in ${error.retryAfterSeconds} s.` : ''
  return { status, code, message: error.message + soon, param: error.param ?? null }
}

/** Returns the value of `x-should-retry`. Without the header, OpenAI's client always retries 408, 409, 429 and 5xx. */
function shouldRetry(error: unknown): boolean {
  if (error instanceof UpstreamFault) return error.row.clientShouldRetry
  return isSoonServed(error) || (error instanceof Fault && error.code === 'rate_limited')
}

/** Returns the error in the contract's form (7.2), with OpenAI's `type` and `param`. */
export function errorBody(error: unknown): GatewayError {
  const { code, message, param } = publicErrorOf(error)
  return gatewayError(code, message, param)
}

export function streamResponse(body: ReadableStream<Uint8Array> | null, headers: ResponseHeaders): Response {
  const all = { ...headers, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
  return new Response(body, { status: 200, headers: all })
}

/** Builds errors of an API. Some APIs name the same code differently, depending on the response's status. */
type ErrorDialect = {
  readonly errorDocument: (error: GatewayError, status: number) => ReturnType<Dialect['errorDocument']>
}

/** Builds the error response. `dialect`: the API that the client uses; null for OpenAI's completions. */
export function errorResponse(error: unknown, headers: ResponseHeaders, dialect: ErrorDialect | null = null): Response {
  const { status, code, message } = publicErrorOf(error)
  const all: ResponseHeaders = { ...headers, ...failureHeaders(status), 'x-should-retry': String(shouldRetry(error)) }
  // A spent budget has no Retry-After: Codex and opencode would wait in silence for that time.
  if (isSoonServed(error)) all['retry-after'] = String(soonSeconds)
  if (error instanceof BusyFault) all['retry-after'] = String(error.retryAfterSeconds)
  if (code !== 'key_config_mismatch') {
    return jsonResponse(dialect?.errorDocument(errorBody(error), status) ?? errorBody(error), status, all)
  }
  const problem: GatewayProblem = { ...keyConfigProblemOf(message), ...errorBody(error) }
  return new Response(JSON.stringify(problem), {
    status,
    headers: { ...all, 'content-type': keyConfigProblem.mediaType },
  })
}

export function refusalResponse(
  refusal: Refusal,
  headers: ResponseHeaders,
  dialect: ErrorDialect | null = null,
): Response {
  const { message, retryAfterSeconds } = refusal
  return errorResponse(new BusyFault(message, retryAfterSeconds), { ...headers, ...refusal.headers }, dialect)
}

export function jsonResponse(body: unknown, status: number, headers: ResponseHeaders): Response {
  return jsonTextResponse(JSON.stringify(body), status, headers)
}

export function jsonTextResponse(json: string, status: number, headers: ResponseHeaders): Response {
  return new Response(json, { status, headers: sameNamed({ ...headers, 'content-type': 'application/json' }) })
}

const sameNamed = createSameNamed()

export function commonHeaders(requestId: string, dialect: Pick<Dialect, 'idHeader'> | null = null): ResponseHeaders {
  const headers = { 'x-request-id': requestId, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }
  const name = dialect?.idHeader ?? null
  return name === null ? headers : { ...headers, [name]: requestId }
}

/** Reports whether the directory of the fleet cannot be read, so that a key that is not here may be valid. */
const isAway = (error: unknown) => error instanceof Fault && error.code === 'fleet.unavailable'

/** Reports whether the same request may succeed in a few seconds. */
const isSoonServed = (error: unknown) => isAway(error) || (error instanceof BudgetFault && error.mayFitSoon)

/**
 * Reports whether the gateway or an upstream failed, not the client. Such failures are logged, but for those that
 * anyone could cause while the directory is away.
 */
export const isServerFailure = (error: unknown) => isInternal(error) && !isAway(error)
