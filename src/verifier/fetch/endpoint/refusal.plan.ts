// Responses to a client whose request does not reach the gateway, in the form of its API. Pure.
//
// No client retries a status below 500 other than 408, 409 and 429; `x-should-retry` says so to clients that read it.

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
  /** Stable, for programs. */
  readonly code: string
  readonly message: string
  /** Whether a retry may succeed without any change. */
  readonly again: boolean
}

/** Longest part of an error message that is repeated; it may quote the other side. */
const reasonCharsMax = 500

/** Failed Dependency. After a 403 Claude Code says that the user is not authenticated. */
const unprovenStatus = 424

/**
 * Seconds until a retry, between which chance decides, so that clients do not come back all at
 * once. Without Retry-After opencode and Claude Code double the time between their retries, and a
 * person waits for minutes before they print the message.
 */
export const retrySeconds = { least: 2, most: 5 } as const

/** Advice that depends on where the endpoint runs. */
export type Advice = {
  /** How a person verifies the gateway by hand. */
  readonly verify: string
  /** How the owner of the endpoint accepts a gateway that its operator changed. */
  readonly change: string
  /** Where the endpoint runs: `inside this instance`. */
  readonly where: string
  /** Why nothing can leave this machine, so that a retry would not help; null if no reason is known. */
  readonly noRoute?: () => string | null
}

type Situation = {
  /** The gateway's. */
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

/** The failed check to name. */
function tellingOf(error: VerificationError): string {
  const first = telling(error.failed)
  return first === undefined ? error.message : `${first.name}: ${first.reason}`
}

/** The check `evidence` of a receipt only repeats that another of its checks failed. */
function telling(failed: readonly Check[]): Check | undefined {
  return failed.find(check => !check.name.endsWith('/evidence')) ?? failed[0]
}

/** The refusal for an error after which the gateway may have the request. */
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

/** By name: this file is also loaded without a connection. */
function isNamed(error: unknown, name: string): error is Error {
  return error instanceof Error && error.name === name
}

function withoutAdvice(message: string): string {
  return message.replace(/\. What to do: .*$/s, '')
}

function reasonOf(text: string): string {
  return harmless(text).replaceAll(/\s+/g, ' ').slice(0, reasonCharsMax)
}

/** Paths of Anthropic's API; all else is OpenAI's. */
function isMessages(path: string): boolean {
  return path === '/v1/messages' || path.startsWith('/v1/messages/')
}

/** The document, as either API's clients know it. */
export function refusalDocument(path: string, { status, code, message }: Refusal): unknown {
  const type = status === unprovenStatus ? 'permission_error' : status < 500 ? 'invalid_request_error' : 'api_error'
  if (isMessages(path)) return { type: 'error', error: { type, message } }
  return { error: { message, type, param: null, code } }
}

/** As an event of a stream that has begun, when the status is already sent. */
export function refusalEvent(path: string, refusal: Refusal): string {
  const data = JSON.stringify(refusalDocument(path, refusal))
  return isMessages(path) ? `event: error\ndata: ${data}\n\n` : `data: ${data}\n\n`
}

/** `afterSeconds`: until a retry. After a 502 the gateway may have carried out the request. */
export function refusalHeaders({ again, status }: Refusal, afterSeconds: number): Record<string, string> {
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store', 'x-should-retry': String(again) }
  const isUnsent = status === 429 || status === 503
  return again && isUnsent ? { ...headers, 'retry-after': String(afterSeconds) } : headers
}
