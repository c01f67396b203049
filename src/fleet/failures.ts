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

/** Shown to clients whose key is not valid in the host's copy, if the copy may be behind. */
export const maybeKeyMessage =
  'The directory of this fleet cannot be reached at present, and this host does not know the key; another host may. Send the request again after the time in Retry-After.'

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
  // Without the right to use the schema the function is unknown: the fleet has removed this host a moment ago.
  if (/^42(883|501)$/.test(state) && /\bbegin_change\b/.test(messageOf(error))) {
    return directoryAway(error, notMemberMessage)
  }
  const isAway = error instanceof ConnectionFailure || AWAY.test(state) || isReplaced(state, error)
  return isAway ? directoryAway(error) : error
}

/**
 * Connection lost (08), sign-in refused (28), missing database or schema (3D, 3F), out of resources (53), shut down or
 * cancelled (57), system error (58), lock timeout (55P03), idle transaction (25P03), read-only standby (25006).
 */
const AWAY = /^(08|28|3D|3F|53|57|58)|^(55P03|25P03|25006)$/

/** A restore of the directory replaced a function or table between the start of a statement and its execution. */
function isReplaced(state: string, error: unknown): boolean {
  return state === 'XX000' && /^(cache lookup failed for|could not open relation with OID) /.test(messageOf(error))
}

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

export type Advice = { readonly problem: string; readonly remedy: string }

const otherAuthority: Advice = {
  problem: "the database's certificate is not signed by an authority in fleet.ca_file",
  remedy:
    "put the certificate of the authority that signed the database's into fleet.ca_file, then restart the service",
}
const outOfDate: Advice = {
  problem: "the database's certificate is not valid now",
  remedy: 'renew it, and see that the clocks of this host and the database are right',
}
const noPassword: Advice = {
  problem: 'the database requests a password, and none is configured',
  remedy: 'write it into the file of fleet.password_file (for --as: --as-password-file)',
}

/** By SQLSTATE, and by Node's codes of TLS. */
const ADVICE: Readonly<Record<string, Advice>> = {
  '28P01': {
    problem: 'the database refuses the password',
    remedy:
      'write the password of the role into the file of fleet.password_file (for --as: --as-password-file), or set it in the database: ALTER ROLE … PASSWORD',
  },
  '28000': {
    problem: 'the database does not let this role sign in from here',
    remedy: 'see that the role exists with LOGIN, and that pg_hba.conf has it with this address and TLS (hostssl)',
  },
  '42501': {
    problem: 'the role lacks a right',
    remedy: 'if it is the role of this host: `strongroom fleet join --as …` on this host gives it its rights',
  },
  '53300': {
    problem: 'the database takes no more connections',
    remedy: "raise max_connections, or the role's CONNECTION LIMIT: a host uses up to 11",
  },
  ERR_TLS_CERT_ALTNAME_INVALID: {
    problem: "the database's certificate is for another name than the host of fleet.database",
    remedy: 'name the host in fleet.database as the certificate does',
  },
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: otherAuthority,
  UNABLE_TO_GET_ISSUER_CERT: otherAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: otherAuthority,
  SELF_SIGNED_CERT_IN_CHAIN: otherAuthority,
  DEPTH_ZERO_SELF_SIGNED_CERT: otherAuthority,
  CERT_SIGNATURE_FAILURE: otherAuthority,
  CERT_HAS_EXPIRED: outOfDate,
  CERT_NOT_YET_VALID: outOfDate,
}

/** Returns what the operator can correct; null if the failure has no such cause. */
export function adviceFor(error: unknown): Advice | null {
  const cause = causeOf(error)
  // The driver's own error has no code.
  if (/^SASL:.*client password must be a/.test(messageOf(cause))) return noPassword
  return ADVICE[systemErrorCode(cause) ?? ''] ?? null
}

function causeOf(error: unknown): unknown {
  const inner = error instanceof Fault ? (error.cause ?? error) : error
  return inner instanceof ConnectionFailure ? (inner.cause ?? inner) : inner
}

/** Returns the reason for log and status, without statement or values. */
export function reasonOf(error: unknown): string {
  const cause = causeOf(error)
  const code = systemErrorCode(cause)
  const said = code === null ? messageOf(cause) : `${messageOf(cause)} (${code})`
  const advice = adviceFor(error)
  return advice === null ? said : `${advice.problem}: ${said}`
}
