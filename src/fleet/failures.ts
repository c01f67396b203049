// Failures of the fleet's database by PostgreSQL's SQLSTATE (its manual, appendix A) and by errno(3). Pure.

import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { UnavailableFault } from '../http/limited.ts'

/** Shown to clients. The request must be a single transaction. */
export const directoryAwayMessage =
  'The directory of this fleet cannot be reached at present. Nothing was changed; send the request again after the time in Retry-After.'

/** The connection ended between the commit and its answer, and no other connection could look it up. */
export const commitUnknownMessage =
  'The connection to the directory of this fleet ended during the change. Check whether it was made; with an Idempotency-Key you may send the same request again after the time in Retry-After.'

/** A primary that failed takes longer to replace; clients then ask again. */
const retryAfterMs = 2_000

/** Status 503 with Retry-After: the database cannot be asked now, or did not answer in time. */
export function directoryAway(cause: unknown, message = directoryAwayMessage): UnavailableFault {
  return new UnavailableFault(message, retryAfterMs, { code: 'fleet.unavailable', cause })
}

/** Any failure of a connection that the server did not report: refused, ended, no answer in time. */
export class ConnectionFailure extends Error {}

/** The SQLSTATE of an error that the server reported; null for any other error. */
export function sqlStateOf(error: unknown): string | null {
  const severity: unknown = Reflect.get(Object(error), 'severity')
  const code = systemErrorCode(error)
  return typeof severity === 'string' && code !== null && /^[0-9A-Z]{5}$/.test(code) ? code : null
}

/**
 * The failure that callers see: `fleet.unavailable` when the database cannot serve now, `fleet.build_newer` for a build
 * that this host must not take up (migration 16), otherwise the error itself.
 */
export function failureOf(error: unknown): unknown {
  const state = sqlStateOf(error) ?? ''
  if (state === claimRefused) return new Fault('fleet.build_newer', messageOf(error), { cause: error })
  const isAway = error instanceof ConnectionFailure || AWAY.test(state)
  return isAway ? directoryAway(error) : error
}

/**
 * Connection lost (08), sign-in refused (28), database or schema not there (3D, 3F), out of resources (53), shut down
 * or cancelled (57), system error (58), lock not free in time (55P03), transaction left idle (25P03), a standby that
 * takes no writes (25006).
 */
const AWAY = /^(08|28|3D|3F|53|57|58)|^(55P03|25P03|25006)$/

const claimRefused = 'SRB01'

/** The server gave up this transaction for another's sake (serialization failure, deadlock): run it again. */
export function isConflict(error: unknown): boolean {
  return ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
}

/** For the log and for status: the reason without statement or values. */
export function reasonOf(error: unknown): string {
  const inner = error instanceof Fault ? (error.cause ?? error) : error
  const cause = inner instanceof ConnectionFailure ? (inner.cause ?? inner) : inner
  const code = systemErrorCode(cause)
  return code === null ? messageOf(cause) : `${messageOf(cause)} (${code})`
}
