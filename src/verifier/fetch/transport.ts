// Carries requests to a gateway: Bun and Node pin the TLS key of every connection, a page cannot. Pure.

import { epochHeader } from '../../attest/ehbp/protocol.ts'

/** A request whole: its body is sent again when the gateway has a new key. */
export type WireRequest = {
  readonly method: string
  readonly url: URL
  /** Without what the connection itself decides (`host`, `connection`, `content-length` and the like). */
  readonly headers: Headers
  readonly body: Uint8Array<ArrayBuffer> | null
  /** Its reason is what the request and the reading of its response reject with. */
  readonly signal: AbortSignal | null
}

export type WireResponse = {
  readonly status: number
  readonly statusText: string
  readonly headers: Headers
  /** Its bytes as they came; it errors when the connection ends before the response does. */
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null
}

export type EvidenceQuestion = { readonly url: URL; readonly bodyBytesMax: number }

export type EvidenceAnswer = {
  readonly status: number
  readonly retryAfter: string | null
  /** The gateway's replay epoch in hexadecimal, which is not signed. */
  readonly epoch: string | null
  readonly body: Uint8Array
}

/** The answer of these headers and this body. */
export function evidenceAnswer(status: number, headers: Headers, body: Uint8Array): EvidenceAnswer {
  return { status, retryAfter: headers.get('retry-after'), epoch: headers.get(epochHeader), body }
}

export type EvidenceAnswers = {
  /** One for each question, in their order. */
  readonly answers: readonly EvidenceAnswer[]
  /** SHA-256 of the public key (SPKI) of the connection that they came over; 'any' where a runtime does not show it. */
  readonly tlsSpkiDigest: Uint8Array | 'any'
}

export type Transport = {
  /** Whether `open` holds every connection to one key. */
  readonly pins: boolean
  /** One GET after the other, on a connection of their own. No redirect is followed, no credentials are sent. */
  readonly askEvidence: (questions: readonly EvidenceQuestion[], signal: AbortSignal) => Promise<EvidenceAnswers>
  /** For requests to the holder of this key alone. `tlsSpkiDigest` is 'any' exactly if the transport does not pin. */
  readonly open: (tlsSpkiDigest: Uint8Array | 'any') => Channel
}

export type Channel = {
  /** Rejects with a PeerKeyError when another key answers: then no byte of the request was sent. */
  readonly send: (request: WireRequest) => Promise<WireResponse>
  /** Ends idle connections. Requests under way go on. */
  readonly close: () => void
}

/** The peer of a connection has another key than the pinned one. */
export class PeerKeyError extends Error {
  override readonly name = 'PeerKeyError'
}
