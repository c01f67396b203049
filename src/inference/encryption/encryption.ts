// Encrypted requests and responses (EHBP) to the gateway's attested keys. Effects: native cryptography, randomness.
//
// Every response to a request with an encapsulated key is encrypted, refusals included, so that a client can
// distinguish the gateway's response from a proxy's. Only the report of changed keys and the refusal of a malformed
// header are in plaintext.

import { bindingOf } from '../../attest/ehbp/binding.ts'
import { encodeKeyConfig } from '../../attest/ehbp/key-config.ts'
import {
  encapsulatedKeyHeader,
  epochHeader,
  frameOverheadBytes,
  requestNonceHeader,
  SIZES,
  staleEpoch,
} from '../../attest/ehbp/protocol.ts'
import {
  NotOurs,
  openContext,
  openSession,
  type ServerContext,
  type ServerParts,
  sealedBytesMaxOf,
  sessionContext,
  suiteOfEncapsulated,
} from '../../attest/ehbp/server.ts'
import { Malformed } from '../../attest/malformed.ts'
import { KEMS, type KemName, kemNames } from '../../attest/receipt/kem.ts'
import type { ReceiptKeys } from '../../attest/receipt/receipt-keys.ts'
import { fromHex, toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { targetOf } from '../../http/head.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import type { BodySender, EncryptedExchange, Encryption, EncryptionCounts } from '../types.ts'
import { type CheckReplay, ReplayMemory } from './replays.ts'
import { encryptResponse } from './response.ts'

export type EncryptionDeps = {
  readonly keys: Pick<ReceiptKeys, 'publicKeys' | 'decapsulate'>
  readonly random: RandomBytes
  readonly checkReplay: CheckReplay
  /** Called for each body that was read, in addition to the counts. */
  readonly onRead?: (suite: KemName, outcome: Outcome) => void
}

type Outcome = keyof EncryptionCounts[KemName]

export function createEncryption({ keys, random, checkReplay, onRead }: EncryptionDeps): Encryption {
  const counts: EncryptionCounts = {
    x25519: { decrypted: 0, key_config_mismatch: 0, malformed: 0, replayed: 0 },
    xwing: { decrypted: 0, key_config_mismatch: 0, malformed: 0, replayed: 0 },
  }
  const note = (suite: KemName, outcome: Outcome) => {
    counts[suite][outcome] += 1
    onRead?.(suite, outcome)
  }
  const parts: ServerParts = { decapsulate: keys.decapsulate, newAesGcm: nativeAesGcm, pause: nextTurn }
  const sessions: Sessions = new Map()
  return {
    keyConfig: encodeKeyConfig(keys.publicKeys),
    counts,
    begin: request => {
      const text = request.headers.get(encapsulatedKeyHeader)
      if (text === null || request.method !== 'POST' || !hasBody(request.headers)) return null
      const encapsulated =
        sessions.get(text)?.encapsulated ?? (text.length <= encapsulatedCharsMax ? fromHex(text) : null)
      const suite = encapsulated === null ? null : suiteOfEncapsulated(encapsulated)
      if (encapsulated === null || suite === null) throw wrongHeader()
      const { method, url, headers } = request
      const requestNonce = requestNonceOf(headers)
      const bound =
        requestNonce === null ? null : { requestNonce, binding: bindingOf({ method, target: targetOf(url), headers }) }
      return new Exchange({ suite, text, encapsulated, bound, sessions, note, parts, random, checkReplay })
    },
  }
}

/** The encryption of the process that decides, with the replay memory of all processes. */
export type OwnEncryption = Encryption & {
  /** Returns the current replay epoch, which GET /attestation names. */
  readonly epoch: () => string
  readonly checkReplay: CheckReplay
}

export function createOwnEncryption(
  deps: Pick<EncryptionDeps, 'keys' | 'random'> & { readonly clock: Pick<Clock, 'monotonicMs'> },
): OwnEncryption {
  const replays = new ReplayMemory(deps)
  const checkReplay: CheckReplay = body => replays.check(body)
  return { ...createEncryption({ ...deps, checkReplay }), epoch: () => replays.epoch, checkReplay }
}

const encapsulatedCharsMax = 2 * Math.max(...kemNames.map(name => KEMS[name].encapsulatedBytes))

/** Sessions by encapsulated key in hexadecimal; the most recently used is last. */
type Sessions = Map<string, Session>
type Session = { readonly secret: Uint8Array; readonly encapsulated: Uint8Array }

/** About 4 KB each. No share: a dropped session costs its client one decapsulation. */
const sessionsMax = 1024

function requestNonceOf(headers: Headers): Uint8Array | null {
  const text = headers.get(requestNonceHeader)
  if (text === null) return null
  const nonce = text.length === 2 * SIZES.requestNonce ? fromHex(text) : null
  if (nonce === null) {
    throw new Fault('invalid_request', `The ${requestNonceHeader} header must be 32 bytes in hexadecimal, sent once.`)
  }
  return nonce
}

/**
 * Reports whether the request has a body. A request without one cannot be encrypted, and its sender does not expect it
 * to be (SPEC.md section 7.4).
 */
function hasBody(headers: Headers): boolean {
  const length = headers.get('content-length')
  return length === null ? headers.has('transfer-encoding') : length !== '0'
}

type ExchangeParts = {
  readonly suite: KemName
  /** The encapsulated key as received. */
  readonly text: string
  readonly encapsulated: Uint8Array
  /** Null for a stock EHBP request. */
  readonly bound: { readonly requestNonce: Uint8Array; readonly binding: Uint8Array } | null
  readonly sessions: Sessions
  readonly note: (suite: KemName, outcome: Outcome) => void
  readonly parts: ServerParts
  readonly random: RandomBytes
  readonly checkReplay: CheckReplay
}

class Exchange implements EncryptedExchange {
  readonly #given: ExchangeParts
  /** Null if no honest sender made this encapsulated key, so the response would be unreadable. */
  #context: Promise<ServerContext | null> | null = null
  #session: Session | null = null
  #isMismatch = false
  /** Value of the epoch header if the client must change its epoch. */
  #epoch: string | null = null

  constructor(given: ExchangeParts) {
    this.#given = given
  }

  get isBound(): boolean {
    return this.#given.bound !== null
  }

  encryptedBytesMaxOf(plainBytes: number): number {
    return sealedBytesMaxOf(plainBytes)
  }

  plainBytesOf(encryptedBytes: number): number {
    return Math.max(0, encryptedBytes - frameOverheadBytes)
  }

  async decrypt(
    body: Uint8Array,
    { bytesMax, sender }: Parameters<EncryptedExchange['decrypt']>[1],
  ): Promise<Uint8Array> {
    const { note, suite } = this.#given
    try {
      const context = await this.#open()
      if (context === null) throw wrongHeader()
      const plain = await context.open(body, bytesMax)
      if (plain.length > bytesMax) throw new Fault('body_too_large', `The body is larger than ${bytesMax} bytes.`)
      if (plain.length === 0) throw new Fault('invalid_request', 'The encrypted body is empty.')
      await this.#refuseReplay(sender)
      note(suite, 'decrypted')
      this.#keepSession()
      return plain
    } catch (error) {
      this.#isMismatch = error instanceof NotOurs
      note(suite, outcomeOf(error))
      throw faultOf(error)
    }
  }

  /** Only for bodies that opened with an authenticated key, so that a stranger's request takes no room. */
  async #refuseReplay(sender: BodySender): Promise<void> {
    const { encapsulated, bound, checkReplay } = this.#given
    const nonce = bound?.requestNonce ?? new Uint8Array(0)
    const digest = new Bun.CryptoHasher('sha256').update(encapsulated).update(nonce).digest()
    const named = bound === null ? null : toHex(nonce.subarray(0, SIZES.epoch))
    const mark = digest.subarray(0, markBytes).toString('base64url')
    const { outcome, epoch } = await checkReplay({ ...sender, epoch: named, mark })
    if (named !== null && named !== epoch) this.#epoch = outcome === 'stale' ? staleEpoch + epoch : epoch
    if (outcome !== 'new') throw new ReplayFault(outcome)
  }

  async encrypt(response: Response): Promise<Response> {
    const context = this.#isMismatch ? null : await this.#open()
    if (context !== null) {
      if (this.#epoch !== null) response.headers.set(epochHeader, this.#epoch)
      return encryptResponse(response, await context.sealResponse(this.#given.random(32)))
    }
    // Content is never sent in the clear, whatever failed before.
    if (response.status < 400) throw new Error('a response that cannot be encrypted')
    return response
  }

  #open(): Promise<ServerContext | null> {
    const { suite, encapsulated, parts, bound } = this.#given
    const open = () => (bound === null ? openContext(suite, encapsulated, parts) : this.#openSession(bound))
    this.#context ??= open().catch(error => {
      if (error instanceof Malformed) return null
      throw error
    })
    return this.#context
  }

  async #openSession(bound: NonNullable<ExchangeParts['bound']>): Promise<ServerContext> {
    const { suite, text, encapsulated, parts, sessions } = this.#given
    const session = sessions.get(text) ?? { secret: await openSession(suite, encapsulated, parts), encapsulated }
    this.#session = session
    return sessionContext(session.secret, { encapsulated, ...bound }, parts)
  }

  /** Only for bodies that opened, so that a stranger's requests cannot evict sessions. */
  #keepSession(): void {
    if (this.#session === null) return
    const { text, sessions } = this.#given
    sessions.delete(text)
    sessions.set(text, this.#session)
    const [oldest] = sessions.size > sessionsMax ? sessions.keys() : []
    if (oldest !== undefined) sessions.delete(oldest)
  }
}

/** Length of a mark in bytes, so that no two bodies share one. */
const markBytes = 16

class ReplayFault extends Fault {
  constructor(outcome: 'seen' | 'stale') {
    if (outcome === 'seen') {
      super('invalid_request', 'This encrypted body was already received: encrypt the request again to repeat it.')
    } else {
      const advice = `encrypt and send again with the epoch in the encrypted ${epochHeader} header of this response`
      super('key_config_mismatch', `The replay epoch that the ${requestNonceHeader} header names has ended: ${advice}.`)
    }
  }
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof ReplayFault) return 'replayed'
  return error instanceof NotOurs ? 'key_config_mismatch' : 'malformed'
}

/**
 * Returns the same message for every cryptographic failure after the first frame, to prevent probing (SPEC.md section
 * 5.4.4).
 */
function faultOf(error: unknown): unknown {
  if (error instanceof NotOurs) {
    return new Fault(
      'key_config_mismatch',
      'The body was not encrypted to the current keys, was changed, or was bound to another path or API key: get the keys from a fresh attestation, then encrypt and send again.',
      { cause: error },
    )
  }
  if (error instanceof Malformed) {
    return new Fault('invalid_request', 'The encrypted body is malformed, cut short or changed.', { cause: error })
  }
  return error
}

function wrongHeader(): Fault {
  return new Fault(
    'invalid_request',
    `The ${encapsulatedKeyHeader} header must be the encapsulated key of X25519 or X-Wing in hexadecimal, sent once.`,
  )
}

function nextTurn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
