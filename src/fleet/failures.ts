// Classifies failures of the fleet's database by PostgreSQL's SQLSTATE (its manual, appendix A) and errno(3). Pure.

import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { UnavailableFault } from '../http/limited.ts'

/** Shown to clients. Only correct for a request that is a single transaction. */
export const directoryAwayMessage =
  'The directory of this fleet cannot be reached at present. Nothing was changed; send the request again after the time in Retry-After.'

/** Shown to clients. */
export const notMemberMessage =
  'This host is not a member of its fleet at present, or another process has its identity. Nothing was changed; send the request to another host of the fleet.'

/** Shown to clients for a read of what the host's copy lacks, if the copy may be behind. */
export const maybeElsewhereMessage =
  'The directory of this fleet cannot be reached at present, and this host does not know the object; another host may. Send the request again after the time in Retry-After.'

/** Shown to clients if the connection ended during the commit and no other connection could look up its outcome. */
export const commitUnknownMessage =
  'The connection to the directory of this fleet ended during the change. Check whether it was made; with an Idempotency-Key you may send the same request again after the time in Retry-After.'

/** Replacing a failed primary takes longer; clients then retry again. */
const retryAfterMs = 2_000

/** Returns a Fault with status 503 and Retry-After: the database is unreachable, or did not respond in time. */
export function directoryAway(cause: unknown, message = directoryAwayMessage): UnavailableFault {
  return new UnavailableFault(message, retryAfterMs, { code: 'fleet.unavailable', cause })
}

/** A failure of a connection that the server did not report: refused, closed, or timed out. */
export class ConnectionFailure extends Error {}

/** The connection had ended while idle, so the transaction cannot have begun. */
export class TransactionNotStarted extends Error {}

/** Returns the SQLSTATE of an error that the server reported; null for any other error. */
export function sqlStateOf(error: unknown): string | null {
  const severity: unknown = Reflect.get(Object(error), 'severity')
  const code = systemErrorCode(error)
  return typeof severity === 'string' && code !== null && /^[0-9A-Z]{5}$/.test(code) ? code : null
}

/**
 * Returns the failure that callers see: `fleet.unavailable` if the database cannot serve at the moment,
 * `fleet.build_newer` for a build that this host must not take (migration 16), otherwise the error itself.
 */
export function failureOf(error: unknown): unknown {
  const state = sqlStateOf(error) ?? ''
  if (state === claimRefused) return new Fault('fleet.build_newer', messageOf(error), { cause: error })
  const isAway = error instanceof ConnectionFailure || AWAY.test(state)
  return isAway ? directoryAway(error) : error
}

/**
 * Connection lost (08), sign-in refused (28), missing database or schema (3D, 3F), out of resources (53), shut down or
 * cancelled (57), system error (58), lock timeout (55P03), idle transaction (25P03), read-only standby (25006).
 */
const AWAY = /^(08|28|3D|3F|53|57|58)|^(55P03|25P03|25006)$/

const claimRefused = 'SRB01'
/** SQLSTATE: a right is missing. */
export const noRight = '42501'
/** SQLSTATE: a statement waited too long for another transaction's lock. */
export const lockTimeout = '55P03'

/**
 * Reports whether the server aborted the transaction in favour of another (serialization failure, deadlock): retry it.
 */
export function isConflict(error: unknown): boolean {
  return ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
}

/** Returns the reason for log and status, without statement or values. */
export function reasonOf(error: unknown): string {
  const inner = error instanceof Fault ? (error.cause ?? error) : error
  const cause = inner instanceof ConnectionFailure ? (inner.cause ?? inner) : inner
  const code = systemErrorCode(cause)
  return code === null ? messageOf(cause) : `${messageOf(cause)} (${code})`
}
