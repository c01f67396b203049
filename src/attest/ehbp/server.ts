// EHBP's server: opens a request's body and seals its response. Pure: the caller supplies keys, randomness and AES.

import { concat, toHex } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { type Decapsulate, KEMS, type KemName, kemNames } from '../receipt/kem.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { FrameReader, frameLength } from './frames.ts'
import { type HpkeContext, hpkeContext } from './hpke.ts'
import { frameOverheadBytes, LABELS, SIZES } from './protocol.ts'
import { type ResponseCiphers, responseCiphers } from './response-keys.ts'
import { type SealedHeaders, sealHeaders } from './sealed-headers.ts'
import { type BoundParts, requestSecrets } from './session.ts'

/** Returns the suite of an encapsulated key, which its length identifies. Null for any other length. */
export function suiteOfEncapsulated(encapsulated: Uint8Array): KemName | null {
  return kemNames.find(name => KEMS[name].encapsulatedBytes === encapsulated.length) ?? null
}

/** Returns how many frames, empty ones included, a body of n bytes may have: one for each KiB, and 64 more. */
export function framesMaxOf(plainBytes: number): number {
  return 64 + Math.ceil(plainBytes / 1024)
}

/** Returns the longest sealed form, in bytes, of a body of at most n bytes. */
export function sealedBytesMaxOf(plainBytes: number): number {
  return plainBytes + framesMaxOf(plainBytes) * frameOverheadBytes
}

export type ServerParts = {
  readonly decapsulate: Decapsulate
  readonly newAesGcm: NewAesGcm
  /** Yields to other work between parts of a long body. */
  readonly pause: () => Promise<void>
}

/** Joins the parts of a body as they arrive. A single part, the usual case, is not copied. */
class Joined {
  readonly #bytesMax: number
  #first: Uint8Array | null = null
  #all: Uint8Array | null = null
  #bytes = 0
  count = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  add(part: Uint8Array): void {
    this.count += 1
    if (this.#first === null) this.#first = part
    else {
      if (this.#all === null) {
        this.#all = new Uint8Array(this.#bytesMax)
        this.#all.set(this.#first)
      }
      this.#all.set(part, this.#bytes)
    }
    this.#bytes += part.length
  }

  whole(): Uint8Array {
    return (this.#all ?? this.#first ?? new Uint8Array(0)).subarray(0, this.#bytes)
  }
}

/** The encryption context of one request. */
export class ServerContext {
  readonly #context: HpkeContext
  readonly #encapsulated: Uint8Array
  readonly #parts: ServerParts

  constructor(context: HpkeContext, encapsulated: Uint8Array, parts: ServerParts) {
    this.#context = context
    this.#encapsulated = encapsulated
    this.#parts = parts
  }

  /**
   * Returns the plain body. Rejects with NotOurs if the first frame does not open, and with Malformed if frames are
   * incomplete, too many, or changed. The caller limits `sealed` by `sealedBytesMaxOf` and checks the length of the
   * result.
   */
  async open(sealed: Uint8Array, plainBytesMax: number): Promise<Uint8Array> {
    const framesMax = framesMaxOf(plainBytesMax)
    const reader = new FrameReader({ bytesMax: sealed.length, emptyMax: framesMax })
    const plain = new Joined(sealed.length)
    let costBytes = 0
    for (let at = 0, end = 0; at < sealed.length; at = end) {
      end = frameEnd(sealed, at)
      for (const frame of reader.push(sealed.subarray(at, end))) {
        wellFormed(plain.count < framesMax, `sealed body: more than ${framesMax} frames`)
        plain.add(await this.#openFrame(frame, plain.count === 0))
        costBytes += frame.length + frameCostBytes
        if (costBytes < pauseBytes) continue
        costBytes = 0
        await this.#parts.pause()
      }
    }
    wellFormed(reader.isClean(), 'sealed body: it ends within a frame')
    return plain.whole()
  }

  /** Prepares to seal the response. `responseNonce`: 32 fresh random bytes. */
  async sealResponse(responseNonce: Uint8Array): Promise<ResponseSealing> {
    const exported = this.#context.exportSecret(LABELS.response)
    const secrets = { exported, encapsulated: this.#encapsulated, responseNonce }
    return new ResponseSealing(toHex(responseNonce), responseCiphers(secrets, this.#parts.newAesGcm))
  }

  async #openFrame(frame: Uint8Array, isFirst: boolean): Promise<Uint8Array> {
    try {
      return await this.#context.cipher.open(frame)
    } catch (cause) {
      if (isFirst) throw new NotOurs({ cause })
      throw new Malformed('sealed body: a frame does not open', { cause })
    }
  }
}

/**
 * Returns the session secret of an encapsulated key. Rejects with Malformed if no honest sender could have made the
 * key.
 */
export async function openSession(suite: KemName, encapsulated: Uint8Array, parts: ServerParts): Promise<Uint8Array> {
  const { exportSecret } = await contextOf(suite, encapsulated, parts)
  return exportSecret(LABELS.session)
}

/** Returns the context of one request of a session. Throws Malformed if the nonce has the wrong length. */
export function sessionContext(
  session: Uint8Array,
  { encapsulated, ...bound }: { readonly encapsulated: Uint8Array } & BoundParts,
  parts: ServerParts,
): ServerContext {
  const { body, exported } = requestSecrets(session, bound, parts.newAesGcm)
  return new ServerContext({ cipher: body, exportSecret: () => exported }, encapsulated, parts)
}

/** Opens a plain request's context. Rejects with Malformed if no honest sender could have made the encapsulated key. */
export async function openContext(
  suite: KemName,
  encapsulated: Uint8Array,
  parts: ServerParts,
): Promise<ServerContext> {
  return new ServerContext(await contextOf(suite, encapsulated, parts), encapsulated, parts)
}

async function contextOf(
  suite: KemName,
  encapsulated: Uint8Array,
  { decapsulate, newAesGcm }: ServerParts,
): Promise<HpkeContext> {
  return hpkeContext(suite, await decapsulate(suite, encapsulated), newAesGcm)
}

/**
 * The first frame does not open. It was sealed to another key, bound to another request, or changed; the server cannot
 * distinguish these.
 */
export class NotOurs extends Error {
  constructor(options: { readonly cause: unknown }) {
    super('the body was not sealed to this key for this request, or was changed', options)
    this.name = 'NotOurs'
  }
}

export class ResponseSealing {
  /** The value of Ehbp-Response-Nonce. */
  readonly nonce: string
  readonly #ciphers: ResponseCiphers

  constructor(nonce: string, ciphers: ResponseCiphers) {
    this.nonce = nonce
    this.#ciphers = ciphers
  }

  /** Returns the frames of the next bytes of the body: one per 64 KiB, none for no bytes. Call it once at a time. */
  async seal(plaintext: Uint8Array): Promise<Uint8Array> {
    const parts: Uint8Array[] = []
    for (let at = 0; at < plaintext.length; at += framePlainBytesMax) {
      const ciphertext = await this.#ciphers.body.seal(plaintext.subarray(at, at + framePlainBytesMax))
      parts.push(frameLength(ciphertext), ciphertext)
    }
    return concat(...parts)
  }

  /** Returns the value of X-Strongroom-Sealed-Headers. Call it once. */
  sealHeaders(headers: SealedHeaders): Promise<string> {
    return sealHeaders(headers, this.#ciphers)
  }
}

/** Plain bytes per frame: how much a client must buffer before it can read on. */
const framePlainBytesMax = 65_536
/** Returns the end of the frame that begins at `at`, so that a reader need not copy a frame that arrives in pieces. */
function frameEnd(sealed: Uint8Array, at: number): number {
  if (at + SIZES.frameLength > sealed.length) return sealed.length
  const length = new DataView(sealed.buffer, sealed.byteOffset + at).getUint32(0)
  return at + SIZES.frameLength + length
}

/**
 * Bytes of work, about a millisecond, after which to yield to other work. A frame costs as much as `frameCostBytes`.
 */
const pauseBytes = 524_288
const frameCostBytes = 4_096
