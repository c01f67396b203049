// EHBP (encrypted HTTP body protocol), client: seals a request to a gateway's attested keys and opens its response.
// Pure: the caller supplies randomness and sends the requests.
//
// 1. A SealingSession binds each request to its method, path and API key (session.ts), for gateways of this project.
//    sealRequest (seal-request.ts) is the plain form that every EHBP server opens. Both return headers and a body for
//    `fetch`; the caller's other headers are sent in the clear.
// 2. isKeyConfigProblem (key-config.ts) reports that the gateway has new keys: attest it, then seal again.
// 3. openResponse rejects an unsealed response, and returns a ResponseOpener for the pieces of its body.

import { concat, fromHex, toHex } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import type { Encapsulate } from '../receipt/encapsulate.ts'
import type { AgreementKeys, KemName } from '../receipt/kem.ts'
import { type Random, take } from '../receipt/seeds.ts'
import { type NewAesGcm, webAesGcm } from './aes-gcm.ts'
import { type FrameLimits, FrameReader, frameLength } from './frames.ts'
import { hpkeContext } from './hpke.ts'
import { openHeaders } from './open-headers.ts'
import { LABELS, responseNonceHeader, SIZES, sealedHeadersHeader } from './protocol.ts'
import { type OrderedCipher, responseCiphers } from './response-keys.ts'
import type { SealedHeaders } from './sealed-headers.ts'
import { requestSecrets } from './session.ts'
import { createWholeCheck, type WholeCheck } from './whole.ts'

/** X25519 for every EHBP server; X-Wing (X25519 and ML-KEM-768 together) for gateways of this project. */
export type EhbpSuite = KemName

/** The key agreement pair of an attestation receipt's `keys`. */
type EhbpKeys = AgreementKeys

export type SealOptions = {
  readonly keys: EhbpKeys
  readonly suite: EhbpSuite
  readonly random: Random
  /** Default: WebCrypto's. */
  readonly newAesGcm?: NewAesGcm
  readonly encapsulate: Encapsulate
}

export type SealedRequest = {
  /** Headers to add to the request. */
  readonly headers: {
    readonly 'ehbp-encapsulated-key': string
    readonly 'x-strongroom-request-nonce'?: string
  }
  readonly body: Uint8Array<ArrayBuffer>
  /**
   * Opens a response. Rejects with Malformed if it is unsealed, whatever its status: nothing in it is authenticated.
   */
  readonly openResponse: (head: ResponseHead, limits?: ResponseLimits) => Promise<ResponseOpener>
}

/** The head of a `fetch` response, for example. `get` returns null if the header is absent. */
export type ResponseHead = { readonly headers: { readonly get: (name: string) => string | null } }

/** Limits on the memory that a gateway, or a proxy in front of it, can make a client use. */
export type ResponseLimits = {
  /** Largest frame. Default: 1 MiB. Gateways of this project send at most 64 KiB. */
  readonly frameBytesMax: number
  /** Empty frames allowed in one response. Default: 64. */
  readonly emptyFramesMax: number
}

const defaultLimits: ResponseLimits = { frameBytesMax: 1_048_576, emptyFramesMax: 64 }

type SessionParts = {
  readonly secret: Uint8Array
  readonly encapsulated: Uint8Array
  readonly header: string
  readonly random: Random
  readonly newAesGcm: NewAesGcm
}

/** Seals many bound requests with one encapsulation (session.ts). */
export class SealingSession {
  readonly #parts: SessionParts

  private constructor(parts: SessionParts) {
    this.#parts = parts
  }

  /** Starts a session. Rejects with Malformed if the keys are invalid. */
  static async open({ suite, keys, random, encapsulate, newAesGcm = webAesGcm }: SealOptions): Promise<SealingSession> {
    const { sharedSecret, encapsulated } = await encapsulate(suite, keys, random)
    const secret = hpkeContext(suite, sharedSecret, newAesGcm).exportSecret(LABELS.session)
    return new SealingSession({ secret, encapsulated, header: toHex(encapsulated), random, newAesGcm })
  }

  /** Seals a request. Rejects with Malformed if the body is empty. `epoch`: the gateway's replay epoch, 16 bytes. */
  async seal(
    body: Uint8Array,
    { binding, epoch }: { readonly binding: Uint8Array; readonly epoch: Uint8Array },
  ): Promise<SealedRequest> {
    const { secret, encapsulated, header, random, newAesGcm } = this.#parts
    requireBody(body)
    const requestNonce = concat(epoch, take(random, SIZES.requestNonce - SIZES.epoch))
    const { body: cipher, exported } = requestSecrets(secret, { requestNonce, binding }, newAesGcm)
    return {
      headers: { 'ehbp-encapsulated-key': header, 'x-strongroom-request-nonce': toHex(requestNonce) },
      body: frameOf(await cipher.seal(body)),
      openResponse: responseOpening({ exported, encapsulated, newAesGcm }),
    }
  }
}

export function requireBody(body: Uint8Array): void {
  wellFormed(body.length > 0, 'sealed request: an empty body')
}

export function frameOf(ciphertext: Uint8Array): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(concat(frameLength(ciphertext), ciphertext))
}

export function responseOpening({
  exported,
  encapsulated,
  newAesGcm,
}: {
  readonly exported: Uint8Array
  readonly encapsulated: Uint8Array
  readonly newAesGcm: NewAesGcm
}): SealedRequest['openResponse'] {
  return async ({ headers }, { frameBytesMax, emptyFramesMax } = defaultLimits) => {
    const nonce = headers.get(responseNonceHeader)
    wellFormed(nonce !== null, 'response: it is not sealed')
    const responseNonce = fromHex(nonce)
    wellFormed(responseNonce?.length === SIZES.responseNonce, 'response nonce: not 32 bytes in hexadecimal')
    const ciphers = responseCiphers({ exported, encapsulated, responseNonce }, newAesGcm)
    const sealed = headers.get(sealedHeadersHeader)
    return new ResponseOpener({
      headers: sealed === null ? {} : await openHeaders(sealed, ciphers),
      cipher: ciphers.body,
      whole: createWholeCheck(headers.get('content-type')),
      limits: { bytesMax: frameBytesMax, emptyMax: emptyFramesMax },
    })
  }
}

type OpenerParts = {
  readonly headers: SealedHeaders
  readonly cipher: OrderedCipher
  readonly whole: WholeCheck
  readonly limits: FrameLimits
}

export class ResponseOpener {
  /** Sealed headers, such as `x-strongroom-receipt`. They replace the response's own headers of the same name. */
  readonly headers: SealedHeaders
  readonly #frames: FrameReader
  readonly #cipher: OrderedCipher
  readonly #whole: WholeCheck
  #isBroken = false

  constructor({ headers, cipher, whole, limits }: OpenerParts) {
    this.headers = headers
    this.#cipher = cipher
    this.#whole = whole
    this.#frames = new FrameReader(limits)
  }

  /**
   * Takes the next bytes of the body, split anywhere, and returns the plain bytes of the frames that they complete.
   * Rejects with Malformed if a frame does not open, and on every later call. Call it once at a time.
   */
  async push(bytes: Uint8Array): Promise<Uint8Array> {
    wellFormed(!this.#isBroken, 'response: it has failed before')
    this.#isBroken = true
    const plain: Uint8Array[] = []
    for (const frame of this.#frames.push(bytes)) plain.push(await openFrame(this.#cipher, frame))
    this.#isBroken = false
    const all = plain.length === 1 && plain[0] !== undefined ? plain[0] : concat(...plain)
    this.#whole.push(all)
    return all
  }

  /**
   * Ends the body. Throws Malformed if it was truncated: EHBP has no end marker, so a stream must end with `[DONE]`,
   * `message_stop` or an error event, and any other response must be one whole JSON object.
   */
  finish(): void {
    wellFormed(!this.#isBroken, 'response: it has failed before')
    wellFormed(this.#frames.isClean() && this.#whole.isWhole(), 'response: it was cut short')
  }
}

async function openFrame(cipher: OrderedCipher, frame: Uint8Array): Promise<Uint8Array> {
  try {
    return await cipher.open(frame)
  } catch (cause) {
    throw new Malformed('response: a frame does not open; it is not of this response, or was changed', { cause })
  }
}
