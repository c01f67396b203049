// Interfaces that several parts of the gateway share, narrow because it runs on a host and in a measured VM. Types
// only.

import type { EndUserBudget, KeyMaker, KeyRules, ShortPeriod } from '../contract/key-rules.ts'

/** Operation of a client's request. */
export type Operation = CompletionOperation | 'responses' | 'compact' | 'messages' | CountOperation | PooledOperation

/** Operations whose models score or embed inputs and generate nothing. */
export type PooledOperation = 'embeddings' | 'rerank'

/** Operations that count the tokens of a prompt and call no upstream. */
export type CountOperation = 'count_tokens' | 'input_tokens'

/** Operation of an upstream's request. */
export type CompletionOperation = 'chat' | 'text_completion'

/** The sender of a request, identified by its gateway key. */
export type Caller = {
  readonly keyPrefix: string
  /** SHA-256 of the key's secret, in hexadecimal: distinguishes the key from another under the same prefix. */
  readonly keyDigest: string
  readonly organizationId: string
  readonly instanceId: string | null
  readonly madeBy: KeyMaker
  readonly requestsPerMinute: number
  readonly tokensPerMinute: number
  readonly concurrencyMax: number
  readonly rules: KeyRules
  readonly budgets: BudgetPair & { readonly short?: readonly ShortBudgetPair[]; readonly endUser?: EndUserBudget }
}

type BudgetPair = { readonly key: Budget; readonly organization: Budget }

/** Budgets of a period that is shorter than a month. */
export type ShortBudgetPair = BudgetPair & { readonly kind: ShortPeriod }

/** Budget of one period (UTC); default: a calendar month. Null means unlimited. */
export type Budget = { readonly nanoUsd: number | null; readonly tokens: number | null }

/**
 * Authenticates by the headers only, so it runs before the body is read. Throws Fault unauthenticated: missing,
 * malformed, unknown, expired or revoked key, or a suspended organization.
 */
export type Authenticate = (headers: KeyHeaders) => Caller

/** Headers that carry a key. */
export type KeyHeaders = Pick<Headers, 'get'>

export type Tokens = {
  readonly prompt: number
  readonly completion: number
  /** Tokens of the prompt that were in the key's own cache. Absent means none. */
  readonly cached?: number
}

/** One admitted request's share of its key's limits. */
export type Ticket = {
  /** `x-ratelimit-*`, for the response to this request. */
  readonly headers: Readonly<Record<string, string>>
  /** Reserves more tokens for the same request. Returns null if they are reserved. */
  readonly extend: (tokens: number) => Refusal | null
  /**
   * Ends the request: real tokens replace the reserved ones, and the key's slot is freed. Further calls have no effect.
   */
  readonly settle: (tokens: Tokens) => void
}

export type Refusal = {
  /** Whole seconds, at least 1, until the same request could be admitted. */
  readonly retryAfterSeconds: number
  readonly headers: Readonly<Record<string, string>>
  readonly message: string
}

/** Applies a key's limits: requests and tokens per minute, concurrent requests. `tokens` is the estimate to reserve. */
export type Admit = (
  caller: Caller,
  tokens: number,
) => { readonly ok: true; readonly ticket: Ticket } | { readonly ok: false; readonly refusal: Refusal }

/**
 * Returns null if `admit` decides now. Otherwise a share of the key's limits has been requested for this host, and
 * `admit` must wait for the promise, which never rejects.
 */
export type Prepare = (caller: Caller, tokens: number) => Promise<void> | null

/** Applies the per-address limit of the public endpoints. Returns null if the request is admitted. */
export type AdmitPublic = (address: string) => Refusal | null

export type SealedRequest = {
  readonly id: string
  readonly model: string
  readonly body: Uint8Array
  /** The maker of the requesting key. */
  readonly keyMadeBy: KeyMaker
  /** The organization; organizations take turns in having responses signed. */
  readonly owner: string
}

/** Makes signed receipts over the hashes of request and response, chained over events, and the upstream's name. */
export type ResponseSealer = {
  /** Throws BusyFault if too many responses of this owner wait for their signatures. */
  readonly begin: (request: SealedRequest) => {
    /** Hashed together with both. Only the response contains it. */
    readonly salt: Uint8Array
    readonly seal: (upstream: string) => SigningSeal
  }
}

/** Begins the seal of a response for the upstream of that name. Call it again for each upstream that is tried. */
export type BegunSeal = (upstream: string) => ResponseSeal

export type ResponseSeal = {
  /** Receives every byte of the response's body in order, except the receipt itself. */
  readonly update: (bytes: Uint8Array) => void
  /** Ends the seal. Resolves to the signed receipt in base64url if the response carries it; otherwise to null. */
  readonly finish: (tokens: Tokens) => Promise<string | null>
}

export type SigningSeal = Pick<ResponseSeal, 'update'> & { readonly finish: (tokens: Tokens) => Promise<string> }

/** Outcomes of requests with an encapsulated key since the start, by suite. */
export type EncryptionCounts = Record<
  'x25519' | 'xwing',
  Record<'decrypted' | 'key_config_mismatch' | 'malformed' | 'replayed', number>
>

/** Opens encrypted requests (EHBP) and encrypts their responses. */
export type Encryption = {
  /** Key configuration that stock clients fetch, `application/ohttp-keys`. */
  readonly keyConfig: Uint8Array
  /**
   * Returns null for a plain request with a plain response. Reads headers only. Fault invalid_request: invalid
   * encapsulated key.
   */
  readonly begin: (request: Request) => EncryptedExchange | null
  readonly counts: EncryptionCounts
}

/** `request`: the id of the request. `keyDigest` is that of an authenticated key. */
export type BodySender = {
  /** See `OpenedBody` of encryption/replays.ts. */
  readonly keyDigest: string
  readonly request: string
}

/** One encrypted request and its response. */
export type EncryptedExchange = {
  /**
   * Whether the sealed body proves which request and key it was made for. Otherwise anyone who ends its TLS can send it
   * again under another key, so nothing of it is stored.
   */
  readonly isBound: boolean
  /** Returns the longest encrypted body of a plain body of at most `plainBytes`. */
  readonly encryptedBytesMaxOf: (plainBytes: number) => number
  /** Returns the longest plain body that an encrypted body of this length can contain. */
  readonly plainBytesOf: (encryptedBytes: number) => number
  /**
   * Returns the plain body. Faults: key_config_mismatch, invalid_request (also for a body that was received before),
   * body_too_large for a plain body over `bytesMax`.
   */
  readonly decrypt: (
    body: Uint8Array,
    given: { readonly bytesMax: number; readonly sender: BodySender },
  ) => Promise<Uint8Array>
  /** Encrypts any response except a key_config_mismatch. Rejects rather than return content in plaintext. */
  readonly encrypt: (response: Response) => Promise<Response>
}

/** One request for the metrics. Durations in milliseconds. */
export type RequestObservation = {
  readonly operation: Operation
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
