// Sends requests to a gateway. Bun and Node pin the TLS key of every connection; a page cannot. Pure.

/** A complete request: its body is resent if the gateway has a new key. */
export type WireRequest = {
  readonly method: string
  readonly url: URL
  /** Headers without those that the connection determines (`host`, `connection`, `content-length` and the like). */
  readonly headers: Headers
  readonly body: Uint8Array<ArrayBuffer> | null
  /** Aborts the request and the reading of its response, which reject with its reason. */
  readonly signal: AbortSignal | null
}

export type WireResponse = {
  readonly status: number
  readonly statusText: string
  readonly headers: Headers
  /** Bytes as received. It errors if the connection ends before the response does. */
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

export type EvidenceAnswers = {
  /** One answer for each question, in their order. */
  readonly answers: readonly EvidenceAnswer[]
  /**
   * SHA-256 of the public key (SPKI) of the connection that delivered them; 'any' if the runtime does not expose it.
   */
  readonly tlsSpkiDigest: Uint8Array | 'any'
}

export type Transport = {
  /** Whether `open` pins every connection to one key. */
  readonly pins: boolean
  /** Sends GET requests one by one over a connection of their own. Follows no redirect and sends no credentials. */
  readonly askEvidence: (questions: readonly EvidenceQuestion[], signal: AbortSignal) => Promise<EvidenceAnswers>
  /** Opens a channel to the holder of this key only. `tlsSpkiDigest` is 'any' exactly if the transport does not pin. */
  readonly open: (tlsSpkiDigest: Uint8Array | 'any') => Channel
}

export type Channel = {
  /** Sends a request. Rejects with a PeerKeyError if the peer has another key; no byte of the request was sent then. */
  readonly send: (request: WireRequest) => Promise<WireResponse>
  /** Closes idle connections. Running requests continue. */
  readonly close: () => void
}
