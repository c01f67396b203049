// Failures of the console as responses, in the form of the operator's interface. Effects: the log.

import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { AdminProblem } from '../../contract/admin/admin.ts'
import { retryAfterOf, storageFault, UnavailableFault } from '../../http/limited.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'

/** Returns a failure as a response. Details of an internal failure are only logged. */
export function failureResponse(log: Logger, thrown: unknown): Response {
  const isOurs = isInternal(thrown) && !(thrown instanceof UnavailableFault)
  if (isOurs) log.error('request failed', { error: thrown })
  const error = storageFault(thrown) ?? thrown
  const fault = error instanceof Fault && !(isOurs && error === thrown) ? error : null
  const param = fault?.param === undefined ? {} : { param: fault.param }
  const problem: AdminProblem = {
    error: { code: fault?.code ?? 'internal', message: fault?.message ?? internalErrorMessage, ...param },
  }
  const status = fault?.status ?? 500
  const seconds = retryAfterOf(fault)
  const headers = new Headers(failureHeaders(status))
  // With this header a browser would ask for a password.
  headers.delete('www-authenticate')
  if (seconds !== null) headers.set('retry-after', String(seconds))
  const response = Response.json(problem, { status })
  headers.forEach((value, name) => {
    response.headers.set(name, value)
  })
  return response
}
