// Errors of service C on the wire: `{error: {code, message, param?}}`, with the codes of service A. Pure.

import { FAULTS, Fault, statusOf } from '../../base/fault.ts'
import type { BuildProblem } from '../../contract/http/build-api.ts'
import { retryAfterOf, UnavailableFault } from '../../http/limited.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'

/** Whether a failure is ours, and nothing that is said to the client as it is. */
export function isUnexpected(error: unknown): boolean {
  return isInternal(error) && !(error instanceof UnavailableFault)
}

/** Anything thrown. What is not a Fault of the caller's making shows nothing of itself. */
export function problemResponse(error: unknown, headers: Readonly<Record<string, string>> = {}): Response {
  const status = error instanceof Fault ? statusOf(error.code) : 500
  const seconds = retryAfterOf(error)
  const retryAfter = seconds === null ? {} : { 'Retry-After': String(seconds) }
  return Response.json(problemOf(error), { status, headers: { ...headers, ...retryAfter, ...failureHeaders(status) } })
}

function problemOf(error: unknown): BuildProblem {
  if (!(error instanceof Fault) || isUnexpected(error)) {
    return { error: { code: 'internal_error', message: internalErrorMessage } }
  }
  const param = error.param === undefined ? {} : { param: error.param }
  return { error: { code: FAULTS[error.code].wire, message: error.message, ...param } }
}
