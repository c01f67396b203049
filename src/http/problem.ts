// The parts of error responses that all services share; each service has its own error document. Pure.

import { FAULTS, Fault } from '../base/fault.ts'
import type { StorageCode } from '../base/storage-failure.ts'

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

/** Words for clients while the database cannot be used, and the time until the next attempt. */
export const STORAGE_FAILURES = {
  'store.busy': {
    message:
      'The database of this service is locked by another program. Nothing was changed; send the request again after the time in Retry-After.',
    waitMs: 2_000,
  },
  'store.unwritable': {
    message:
      'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request again after the time in Retry-After.',
    waitMs: 30_000,
  },
  'store.corrupt': {
    message:
      'The database of this service is damaged. Nothing was changed; tell the operator, and send the request again after the time in Retry-After.',
    waitMs: 60_000,
  },
} as const satisfies Record<StorageCode, { readonly message: string; readonly waitMs: number }>
