// Responses to a client whose request does not reach the gateway, in the form of its API. Pure.
//
// No client retries a status below 500 other than 408, 409 and 429; `x-should-retry` informs clients that support it.

import type { Check } from '../../../attest/verdict.ts'
import { Fault } from '../../../base/fault.ts'
import { harmless } from '../../../base/harmless.ts'
import {
  ConnectionError,
  EncryptionError,
  EvidenceError,
  IncompleteResponseError,
  KeyChangedError,
  OptionError,
  RequestError,
  VerificationError,
} from '../errors.ts'

export type Refusal = {
  readonly status: number
  /** Stable code for programs. */
  readonly code: string
  readonly message: string
  /** Whether a retry may succeed without any change. */
  readonly again: boolean
}

/** Limit on the quoted part of an error message, which may contain the other side's text. */
const reasonCharsMax = 500

/** Failed Dependency. For a 403, Claude Code reports that the user is not authenticated. */
const unprovenStatus = 424

/**
 * Range from which the seconds until a retry are drawn at random, so that clients do not all retry at once. Without
 * Retry-After, opencode and Claude Code double the time between retries, and a person waits for minutes before seeing
 * the message.
 */
export const retrySeconds = { least: 2, most: 5 } as const

/** Advice that depends on where the endpoint runs. */
export type Advice = {
  /** How a person can verify the gateway. */
  readonly verify: string
  /** How the endpoint's owner accepts a gateway that its operator changed. */
  readonly change: string
  /** Location of the endpoint: `inside this instance`. */
  readonly where: string
  /** Returns why nothing can leave this machine, so that a retry would not help; null if no reason is known. */
  readonly noRoute?: () => string | null
}

type Situation = {
  /** Host of the gateway. */
  readonly host: string
  /** Name of the data that was not sent to the gateway. */
  readonly sent: string
  readonly advice: Advice
}

export function refusalOf(error: unknown, situation: Situation): Refusal {
  const { host, sent, advice } = situation
  const unsent = (why: string, what: string) => `${sent} was not sent: ${reasonOf(why)}. What to do: ${what}`
  if (error instanceof VerificationError) {
    const why = `the gateway at ${host} did not prove what it has to: ${tellingOf(error)}`
    return unproven('gateway_not_verified', unsent(why, `${advice.verify}; ${advice.change}`))
  }
  if (error instanceof KeyChangedError) {
    const why = `the server at ${host} has another key than the attested gateway, and no valid evidence for it`
    const { cause } = error
    if (!(cause instanceof VerificationError)) return unproven('gateway_key_changed', unsent(why, advice.verify))
    const what = `${advice.verify}; ${advice.change}`
    return unproven('gateway_key_changed', unsent(`${why}: ${tellingOf(cause)}`, what))
  }
  const noRoute = isOfNetwork(error) ? (advice.noRoute?.() ?? null) : null
  if (noRoute !== null) {
    const what = 'copy your work away over SSH, or ask the operator to raise the limit'
    const mayBeSent = !(error instanceof EvidenceError || isUnsent(error))
    const cut = `The gateway at ${host} did not answer in full: ${noRoute}. What to do: ${what}`
    return unproven('egress_spent', mayBeSent ? cut : unsent(noRoute, what))
  }
  if (error instanceof EvidenceError) {
    const message = unsent(withoutAdvice(error.message), `try again; if it fails again, ${advice.verify}`)
    return { status: 503, code: 'gateway_no_evidence', message, again: true }
  }
  if (isUnsent(error)) {
    const message = unsent(error.message, `try again; if it fails again, ${advice.verify}`)
    return { status: 503, code: 'gateway_connection', message, again: true }
  }
  if (error instanceof RequestError) {
    return { status: 400, code: 'invalid_request', message: unsent(error.message, 'correct it'), again: false }
  }
  if (isNamed(error, 'CertificateNameError')) {
    const why = `the server at ${host} is not the gateway: ${error.message}`
    return unproven('gateway_certificate', unsent(why, advice.verify))
  }
  if (error instanceof Fault || error instanceof OptionError) {
    return unproven('gateway_unusable', unsent(error.message, advice.verify))
  }
  return afterwards(error, situation)
}

function isOfNetwork(error: unknown): boolean {
  return error instanceof EvidenceError || error instanceof ConnectionError || error instanceof IncompleteResponseError
}

function isUnsent(error: unknown): error is ConnectionError {
  return error instanceof ConnectionError && error.isUnsent
}

function unproven(code: string, message: string): Refusal {
  return { status: unprovenStatus, code, message, again: false }
}

/** Returns the failed check to name. */
function tellingOf(error: VerificationError): string {
  const first = telling(error.failed)
  return first === undefined ? error.message : `${first.name}: ${first.reason}`
}

/** Skips the check `evidence` of a receipt, which only repeats that another of its checks failed. */
function telling(failed: readonly Check[]): Check | undefined {
  return failed.find(check => !check.name.endsWith('/evidence')) ?? failed[0]
}

/** Returns the response to an error after which the gateway may have received the request. */
function afterwards(error: unknown, { host, advice }: Situation): Refusal {
  const said = error instanceof Error ? reasonOf(error.message) : 'no reason'
  if (error instanceof ConnectionError || error instanceof IncompleteResponseError) {
    const message = `The gateway at ${host} did not answer in full: ${said}. What to do: try again`
    return { status: 502, code: 'gateway_connection', message, again: true }
  }
  if (error instanceof EncryptionError) {
    const message = `The response from ${host} was thrown away: ${said}. What to do: ${advice.verify}`
    return { status: 502, code: 'gateway_encryption', message, again: false }
  }
  const message = `The request failed ${advice.where}: ${said}. What to do: ${advice.verify}`
  return { status: 500, code: 'internal', message, again: false }
}

/** Compares names instead of classes, because this file is also loaded without the connection's code. */
function isNamed(error: unknown, name: string): error is Error {
  return error instanceof Error && error.name === name
}

function withoutAdvice(message: string): string {
  return message.replace(/\. What to do: .*$/s, '')
}

function reasonOf(text: string): string {
  return harmless(text).replaceAll(/\s+/g, ' ').slice(0, reasonCharsMax)
}

/** Reports whether a path belongs to Anthropic's API; all others belong to OpenAI's. */
function isMessages(path: string): boolean {
  return path === '/v1/messages' || path.startsWith('/v1/messages/')
}

/** Returns the error document in the form of the client's API. */
export function refusalDocument(path: string, { status, code, message }: Refusal): unknown {
  const type = status === unprovenStatus ? 'permission_error' : status < 500 ? 'invalid_request_error' : 'api_error'
  if (isMessages(path)) return { type: 'error', error: { type, message } }
  return { error: { message, type, param: null, code } }
}

/** Returns an event for a stream that has begun, after its status was sent. */
export function refusalEvent(path: string, refusal: Refusal): string {
  const data = JSON.stringify(refusalDocument(path, refusal))
  return isMessages(path) ? `event: error\ndata: ${data}\n\n` : `data: ${data}\n\n`
}

/** Returns headers. `afterSeconds`: time until a retry. After a 502 the gateway may have executed the request. */
export function refusalHeaders({ again, status }: Refusal, afterSeconds: number): Record<string, string> {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store', 'x-should-retry': String(again) }
  const isUnsent = status === 429 || status === 503
  return again && isUnsent ? { ...headers, 'retry-after': String(afterSeconds) } : headers
}
