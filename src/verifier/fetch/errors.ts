// Errors of an attested fetch: one class for each action that its caller can take. Pure.
//
// An OpenAI client wraps the errors of its `fetch`: see the `cause` of its APIConnectionError.

import type { Check } from '../../attest/verdict.ts'

/** Every error of this package. An aborted request rejects with the signal's reason instead, as in every fetch. */
export abstract class AttestedFetchError extends Error {
  /** Stable: the name of the class. */
  abstract override readonly name: string
}

/** The options are invalid. Correct the one in `param`; nothing was sent. */
export class OptionError extends AttestedFetchError {
  override readonly name = 'OptionError'
  readonly param: string

  constructor(param: string, problem: string, options?: ErrorOptions) {
    super(`${param}: ${problem}`, options)
    this.param = param
  }
}

/** The request cannot be sent to the attested gateway. Correct it; nothing was sent. */
export class RequestError extends AttestedFetchError {
  override readonly name = 'RequestError'
}

/**
 * No evidence was received: no connection, no response in time, or the gateway has none at the moment. Nothing was
 * sent. Try again.
 */
export class EvidenceError extends AttestedFetchError {
  override readonly name = 'EvidenceError'
  /** The response's HTTP status; null if there was no complete response. */
  readonly status: number | null

  constructor(message: string, { status, cause }: { readonly status: number | null; readonly cause?: unknown }) {
    super(message, cause === undefined ? undefined : { cause })
    this.status = status
  }
}

/**
 * The evidence does not meet the policy. Retrying does not help: `failed` has the checks by name. Either this is not
 * the intended gateway, or it has changed and your policy must change too. Nothing of the request was sent.
 */
export class VerificationError extends AttestedFetchError {
  override readonly name = 'VerificationError'
  /** Every check of the verdict. */
  readonly checks: readonly Check[]
  /** The failed checks. */
  readonly failed: readonly Check[]
  /** Every check of each receipt; some of `checks` group these. */
  readonly details: readonly Check[]

  constructor(host: string, checks: readonly Check[], details: readonly Check[] = []) {
    const failed = checks.filter(
      check => check.outcome === 'fail' || (check.outcome === 'not-checked' && check.required),
    )
    super(verificationMessage(host, failed))
    this.checks = checks
    this.failed = failed
    this.details = details
  }
}

/**
 * The server uses a key that is not the attested one, and fresh evidence did not explain it: `cause` has the reason.
 * Nothing of the request was sent to that key. If it persists, an attacker is between you and the gateway, or several
 * gateways share its address.
 */
export class KeyChangedError extends AttestedFetchError {
  override readonly name = 'KeyChangedError'
}

/** The gateway did not name the maker of an API key. `status` is that of its response to GET /v1/usage. */
export class KeyMakerError extends AttestedFetchError {
  override readonly name = 'KeyMakerError'
  readonly status: number

  constructor(message: string, { status }: { readonly status: number }) {
    super(message)
    this.status = status
  }
}

/**
 * The connection to the gateway failed, or it redirected. If the request was sent, it may have been executed, and the
 * message mentions it. This package resends only idempotent requests, such as a GET. An OpenAI client retries unless
 * its `maxRetries` is 0.
 */
export class ConnectionError extends AttestedFetchError {
  override readonly name = 'ConnectionError'
  /** True if certainly no byte of the request was sent. */
  readonly isUnsent: boolean

  constructor(message: string, { isUnsent = false, ...options }: ErrorOptions & { readonly isUnsent?: boolean } = {}) {
    super(message, options)
    this.isUnsent = isUnsent
  }
}

/** A response is not encrypted to this request, or cannot be decrypted. Distrust it; the request was sent encrypted. */
export class EncryptionError extends AttestedFetchError {
  override readonly name = 'EncryptionError'
  /** The response's HTTP status, which is not authenticated; null if there was no response. */
  readonly status: number | null

  constructor(message: string, { status, cause }: { readonly status: number | null; readonly cause?: unknown }) {
    super(message, cause === undefined ? undefined : { cause })
    this.status = status
  }
}

/** A response broke off: a stream without `[DONE]`, or an incomplete JSON document. Its end may be missing: retry. */
export class IncompleteResponseError extends AttestedFetchError {
  override readonly name = 'IncompleteResponseError'
}

const failedShownMax = 3

function verificationMessage(host: string, failed: readonly Check[]): string {
  const shown = failed.slice(0, failedShownMax).map(({ name, reason }) => `${name}: ${reason}`)
  const more = failed.length > failedShownMax ? `; and ${failed.length - failedShownMax} more in \`failed\`` : ''
  const advice = 'nothing was sent; check the address, and the policy if the gateway was changed on purpose'
  return `${host} did not verify: ${shown.join('; ')}${more}. What to do: ${advice}`
}

/** The peer of a connection has another key than the pinned one. Callers of the fetch never see it. */
export class PeerKeyError extends Error {
  override readonly name = 'PeerKeyError'
}
