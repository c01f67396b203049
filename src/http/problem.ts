// The parts of error responses that all services share; each service has its own error document. Pure.

import { FAULTS, Fault } from '../base/fault.ts'

/** The whole message that a client gets for a failure of ours. */
export const internalErrorMessage = 'An unexpected error occurred.'

/** Whether a failure is ours; such failures are logged in full. */
export function isInternal(error: unknown): boolean {
  return !(error instanceof Fault) || FAULTS[error.code].wire === 'internal_error'
}

/** Headers that a failure's status requires. */
export function failureHeaders(status: number): Readonly<Record<string, string>> {
  return HEADERS_BY_STATUS[status] ?? NONE
}

const NONE = {}
/** The rest of an abandoned body is not read. */
const CLOSE = { connection: 'close' }
const HEADERS_BY_STATUS: Readonly<Record<number, Readonly<Record<string, string>>>> = {
  // RFC 9110 11.6.1.
  401: { 'www-authenticate': 'Bearer' },
  408: CLOSE,
  413: CLOSE,
}
