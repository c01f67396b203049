// Why an attested fetch did not go through: one class for each thing that its caller can do about it. Pure.
//
// An OpenAI client wraps what its `fetch` throws: look at the `cause` of its APIConnectionError.

import type { Check } from '../../attest/verdict.ts'

/** Every error of this package. An aborted request rejects with the signal's reason instead, as every fetch does. */
export abstract class AttestedFetchError extends Error {
  /** Stable; the name of the class. */
  abstract override readonly name: string
}

/** The options cannot be used. Correct the one that `param` names; nothing was sent. */
export class OptionError extends AttestedFetchError {
  override readonly name = 'OptionError'
  readonly param: string

  constructor(param: string, problem: string, options?: ErrorOptions) {
    super(`${param}: ${problem}`, options)
    this.param = param
  }
}

/** The request is none that goes to the attested gateway. Correct it; nothing was sent. */
export class RequestError extends AttestedFetchError {
  override readonly name = 'RequestError'
}

/** No evidence came: no connection, no response in time, or the gateway has none now. Nothing was sent: try again. */
export class EvidenceError extends AttestedFetchError {
  override readonly name = 'EvidenceError'
  /** The response's HTTP status; null when there was no whole response. */
  readonly status: number | null

  constructor(message: string, { status, cause }: { readonly status: number | null; readonly cause?: unknown }) {
    super(message, cause === undefined ? undefined : { cause })
    this.status = status
  }
}

/**
 * Evidence came, and it is not what the policy wants. Trying again does not help: `failed` has the checks by name.
 * Either this is not the gateway that you mean, or it has changed and your policy has to; nothing of the request was
 * sent.
 */
export class VerificationError extends AttestedFetchError {
  override readonly name = 'VerificationError'
  /** Every check of the verdict. */
  readonly checks: readonly Check[]
  /** The failed checks. */
  readonly failed: readonly Check[]
  /** Every check of each receipt, of which some of `checks` are groups. */
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

/**
 * The gateway did not say who made an API key. `status` is that of its response to GET /v1/usage.
 */
export class KeyMakerError extends AttestedFetchError {
  override readonly name = 'KeyMakerError'
  readonly status: number

  constructor(message: string, { status }: { readonly status: number }) {
    super(message)
    this.status = status
  }
}

/**
 * The connection to the gateway failed, or it redirected. A request that was written to it may have been carried out:
 * the message says so then, and nothing but a GET or another idempotent request is sent a second time by this package.
 * An OpenAI client repeats it unless its `maxRetries` is 0.
 */
export class ConnectionError extends AttestedFetchError {
  override readonly name = 'ConnectionError'
  /** True if it is certain that no byte of the request was sent. */
  readonly isUnsent: boolean

  constructor(message: string, { isUnsent = false, ...options }: ErrorOptions & { readonly isUnsent?: boolean } = {}) {
    super(message, options)
    this.isUnsent = isUnsent
  }
}

/** A response is not encrypted to this request, or does not open. Distrust it; the request went out encrypted. */
export class EncryptionError extends AttestedFetchError {
  override readonly name = 'EncryptionError'
  /** The response's HTTP status, which is not authenticated. Null if there was no response. */
  readonly status: number | null

  constructor(message: string, { status, cause }: { readonly status: number | null; readonly cause?: unknown }) {
    super(message, cause === undefined ? undefined : { cause })
    this.status = status
  }
}

/** A response broke off: a stream without `[DONE]`, or half a JSON document. It may lack its end: ask again. */
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
