// EHBP (encrypted HTTP body protocol), the client's half: seals one request's body to a gateway's attested keys and opens its response. Pure:
// randomness comes from the caller; requests are sent by the caller.
//
// 1. sealRequest(...) gives a header and a body for `fetch`. The caller's own headers (authorization, content-type) go beside it, in the clear.
// 2. isKeyConfigProblem(...) says that the gateway has other keys now: attest it again, then seal anew. Nobody signs that response, so it proves
//    nothing but that this request was not answered.
// 3. openResponse(head) refuses a response that is not sealed, and gives a ResponseOpener for the pieces of its body as they arrive.

import type { Random } from './random.ts'

/** X25519 for every EHBP server; X-Wing (X25519 and ML-KEM-768 together) for gateways of this project. */
export type EhbpSuite = 'x25519' | 'xwing'

/** The key agreement pair of an attestation receipt's `keys`. */
export type EhbpKeys = { readonly x25519: Uint8Array; readonly mlkem768: Uint8Array }

export type SealOptions = {
  readonly keys: EhbpKeys
  readonly suite: EhbpSuite
  readonly random: Random
}

/** Throws Malformed for keys of the wrong length and for an empty body, which EHBP cannot seal. */
export declare function sealRequest(options: SealOptions, body: Uint8Array): Promise<SealedRequest>

export type SealedRequest = {
  /** To be added to the request's headers. */
  readonly headers: Readonly<Record<'ehbp-encapsulated-key', string>>
  readonly body: Uint8Array<ArrayBuffer>
  /**
   * Once for each request. Throws Malformed when the response is not sealed, whatever its status: then nobody vouches for any of it, and a caller
   * may show a plain error only as an unauthenticated one.
   */
  readonly openResponse: (head: ResponseHead, limits?: ResponseLimits) => Promise<ResponseOpener>
}

export type ResponseHead = {
  /** `null` where there is no such header, as `Headers.get` says it. */
  readonly headers: { readonly get: (name: string) => string | null }
}

/** Bounds on what a gateway, or whoever stands before it, can make a client keep. */
export type ResponseLimits = {
  /** Of one frame: 1 MiB by default. Gateways of this project send at most 64 KiB. */
  readonly frameBytesMax: number
  /** Frames without content that follow each other: 64 by default. */
  readonly emptyFramesMax: number
}

export type ResponseOpener = {
  /** Headers that were sealed, such as `x-strongroom-receipt`; to be put among the response's own, and to replace any of the same name. */
  readonly headers: Readonly<Record<string, string>>
  /**
   * The next bytes of the body, in any pieces; gives the plain bytes of the frames that they complete. Throws Malformed at a frame that does not open,
   * and at every call after that. Calls must not overlap.
   */
  readonly push: (bytes: Uint8Array) => Promise<Uint8Array>
  /**
   * To be called at the body's end. Throws Malformed when it was cut: EHBP has no end marker, so a stream must end with `[DONE]` or an error event and
   * JSON must be complete.
   */
  readonly finish: () => void
}

/** Whether a response says that the gateway has no such key: status 422 and a problem document of EHBP's type. `body`: its text, bounded by the caller. */
export declare function isKeyConfigProblem(response: {
  readonly status: number
  readonly contentType: string | null
  readonly body: string
}): boolean
