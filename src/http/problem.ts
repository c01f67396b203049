// What the error responses of all services share; each service has its own document around the words. Pure.

import { FAULTS, Fault } from '../base/fault.ts'

/** All that a client learns of a failure that is ours. */
export const internalErrorMessage = 'An unexpected error occurred.'

/** Whether a failure is ours and not the client's: it is logged in full. */
export function isInternal(error: unknown): boolean {
  return !(error instanceof Fault) || FAULTS[error.code].wire === 'internal_error'
}

/** Headers that belong to the status of a failure, whatever its document says. */
export function failureHeaders(status: number): Readonly<Record<string, string>> {
  return HEADERS_BY_STATUS[status] ?? NONE
}

const NONE = {}
/** The rest of a body that was given up on is not worth reading. */
const CLOSE = { connection: 'close' }
const HEADERS_BY_STATUS: Readonly<Record<number, Readonly<Record<string, string>>>> = {
  // RFC 9110 11.6.1.
  401: { 'www-authenticate': 'Bearer' },
  408: CLOSE,
  413: CLOSE,
}
