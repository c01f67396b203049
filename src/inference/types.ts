// What the gateway's request path needs of the rest, as narrow interfaces: the same code is to run in a measured VM one day, with the host
// reached over the agent channel. Types only.

import type { UsageOutcome } from '../store/directory/usage.table.ts'

/** Whoever sent a request, by its gateway key. */
export type Caller = {
  readonly keyPrefix: string
  readonly organizationId: string
  readonly instanceId: string | null
  readonly requestsPerMinute: number
  readonly tokensPerMinute: number
  readonly concurrencyMax: number
}

/** From headers alone, before any body is read. Fault unauthenticated: missing, malformed, unknown, expired or revoked key, suspended organization. */
export type Authenticate = (headers: Headers) => Caller

export type Tokens = { readonly prompt: number; readonly completion: number }

/** Room for one request. It is given back exactly once, whatever happens; further calls do nothing. */
export type Ticket = {
  /** `x-ratelimit-*`, for every answer to this request. */
  readonly headers: Readonly<Record<string, string>>
  /** Ends the request: the reserved tokens become the real ones and the slot is free. */
  readonly settle: (tokens: Tokens) => void
}

export type Refusal = {
  /** Whole seconds, at least 1, until a slot or enough tokens will really be there. */
  readonly retryAfterSeconds: number
  readonly headers: Readonly<Record<string, string>>
  readonly message: string
}

/** Per-key requests, tokens and concurrency. `tokens` is the estimate to reserve. */
export type Admit = (
  caller: Caller,
  tokens: number,
) => { readonly ok: true; readonly ticket: Ticket } | { readonly ok: false; readonly refusal: Refusal }

/** Per-address limit of the public endpoints. Null: go on. */
export type AdmitPublic = (address: string) => Refusal | null

export type UsageRecord = {
  /** The gateway's request id: writing it again changes nothing. */
  readonly id: string
  readonly atMs: number
  readonly caller: Caller
  readonly model: string
  readonly upstream: string
  readonly tokens: Tokens
  readonly outcome: UsageOutcome
}

/** Appends to the ledger; never throws into a request, failures are logged and counted. */
export type RecordUsage = (record: UsageRecord) => void

/** Seals an answer: hashes of request and answer bytes, chained over events, signed. Null when receipts are not to be had. */
export type ResponseSealer = {
  readonly begin: (request: { readonly id: string; readonly model: string; readonly body: Uint8Array }) => ResponseSeal
}

export type ResponseSeal = {
  /** Every byte of the answer's body that the client gets, in order, the receipt itself left out. */
  readonly update: (bytes: Uint8Array) => void
  /** Base64url text of the signed receipt. */
  readonly finish: (tokens: Tokens) => string
}

/** What happened to a request, for metrics. Durations in milliseconds. */
export type RequestObservation = {
  readonly operation: 'chat' | 'text_completion'
  readonly model: string
  readonly upstream: string | null
  readonly status: number
  readonly errorCode: string | null
  readonly tokens: Tokens
  readonly durationMs: number
  readonly firstChunkMs: number | null
  readonly queueMs: number
}

export type Observe = (observation: RequestObservation) => void
