// Passkeys of the console (WebAuthn level 3): created in a session, used to log in. Effects: the store; loads the
// library on first use.
//
// A passkey belongs to one name of the console and to one person. The device verifies the person each time (user
// verification), so that a stolen device alone is not enough to log in.

import { isIP } from 'node:net'
import { fromBase64Url, toBase64Url, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { SessionDocument } from '../../contract/admin/console.ts'
import type { LedgerDb } from '../../store/db.ts'
import {
  countPasskeys,
  insertPasskey,
  notePasskeyUse,
  passkeyById,
  passkeysOf,
} from '../../store/ledger/passkey.query.ts'
import type { Passkey } from '../../store/ledger/passkey.table.ts'
import { lowerRole, type Person } from '../person.ts'
import { Challenges, challengeLifeMs } from './challenges.ts'
import type { Assertion, NewPasskey } from './responses.ts'

/** Passkeys of one person for one name. Share: this limit is the share of one person. */
const passkeysPerActorMax = 16
/** Share: `passkeysPerActorMax` for one person. */
const passkeysMax = 2_048

export type PasskeysDeps = {
  readonly db: LedgerDb
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  readonly hostId: string
  /** Returns identity and current role of an actor; null if the actor may not log in. */
  readonly personOf: (actor: string) => Person | null
  /** Whether records may change; false while an upgrade is on trial. */
  readonly mayWrite: () => boolean
}

/** The console's name in the browser's request, and its origin. */
export type PasskeyOrigin = { readonly hostName: string; readonly origin: string }

/** COSE algorithms (RFC 9053): Ed25519, ECDSA with P-256, RSA PKCS #1 with SHA-256. */
const ALGORITHMS = [-8, -7, -257]

/** Returns the domain name to which passkeys belong (WebAuthn level 3, 4, "RP ID"), or why there is none. */
export function passkeyPlace(hostName: string): SessionDocument['passkeys'] {
  if (isIP(hostName.replace(/^\[|\]$/g, '')) === 0) return { rp_id: hostName, why: null }
  const why = `passkeys belong to a name, and ${hostName} is an address: open the console by localhost or by one of console.names`
  return { rp_id: null, why }
}

export class Passkeys {
  readonly #deps: PasskeysDeps
  readonly #challenges: Challenges

  constructor(deps: PasskeysDeps) {
    this.#deps = deps
    this.#challenges = new Challenges(deps)
  }

  /** Returns PublicKeyCredentialCreationOptionsJSON. Fault conflict. */
  async creationOptions(
    { id, person }: { readonly id: string; readonly person: Person },
    place: PasskeyOrigin,
  ): Promise<object> {
    const rpID = requiredRpId(place)
    const own = this.#ownAt(person, rpID)
    const { generateRegistrationOptions } = await loadLibrary()
    return generateRegistrationOptions({
      rpName: 'Strongroom',
      rpID,
      userName: `${person.actor} at ${rpID}`,
      userDisplayName: person.actor,
      userID: this.#handleOf(person.actor),
      challenge: this.#challenges.make(creationPurpose(id, rpID)),
      timeout: challengeLifeMs,
      attestationType: 'none',
      excludeCredentials: own.map(passkey => ({ id: passkey.id })),
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      supportedAlgorithmIDs: ALGORITHMS,
    })
  }

  /**
   * Creates a passkey. Faults: conflict; forbidden if the response does not verify. Calls `record` before storing it.
   */
  async create(
    { id, person }: { readonly id: string; readonly person: Person },
    { name, response }: NewPasskey,
    place: PasskeyOrigin,
    record: (passkey: Passkey) => void,
  ): Promise<Passkey> {
    const { db, clock } = this.#deps
    const rpId = requiredRpId(place)
    this.#ownAt(person, rpId)
    const { credential, challenge } = await this.#proved('passkey was not made', async () => {
      const { verifyRegistrationResponse } = await loadLibrary()
      await refuseCertificates(response.response.attestationObject)
      const purpose = creationPurpose(id, rpId)
      const { verified, registrationInfo } = await verifyRegistrationResponse({
        response: { ...response, clientExtensionResults: {} },
        expectedChallenge: challenge => this.#challenges.isGood(challenge, purpose),
        expectedOrigin: place.origin,
        expectedRPID: rpId,
        requireUserVerification: true,
        supportedAlgorithmIDs: ALGORITHMS,
      })
      if (!verified) throw new Error('not verified')
      return { credential: registrationInfo.credential, challenge: challengeOf(response.response.clientDataJSON) }
    })
    const row: Passkey = {
      ...{ id: credential.id, actor: person.actor, role: person.role, rpId, name },
      publicKey: Buffer.from(credential.publicKey),
      counter: credential.counter,
      createdAtMs: clock.nowMs(),
      lastUsedAtMs: null,
    }
    if (!this.#challenges.use(challenge)) throw unproved('passkey was not made')
    record(row)
    if (!insertPasskey(db, row)) throw new Fault('conflict', 'This passkey is already registered.')
    return row
  }

  /**
   * Returns PublicKeyCredentialRequestOptionsJSON, without ids: the browser offers its own, and the ids here stay
   * secret.
   */
  async logInOptions(place: PasskeyOrigin): Promise<object> {
    const rpID = requiredRpId(place)
    const { generateAuthenticationOptions } = await loadLibrary()
    return generateAuthenticationOptions({
      rpID,
      challenge: this.#challenges.make(logInPurpose(rpID)),
      timeout: challengeLifeMs,
      userVerification: 'required',
    })
  }

  /**
   * Returns the person whose passkey signed. Fault forbidden if this host has no such passkey or it does not verify.
   */
  async logIn(
    response: Assertion,
    place: PasskeyOrigin,
  ): Promise<{ readonly person: Person; readonly passkeyId: string }> {
    const { db, clock } = this.#deps
    const rpId = requiredRpId(place)
    const passkey = passkeyById(db, response.id)
    const { userHandle, ...signed } = response.response
    if (passkey === null || passkey.rpId !== rpId) throw unproved(refused)
    if (userHandle !== null && userHandle !== toBase64Url(this.#handleOf(passkey.actor))) throw unproved(refused)
    const counter = await this.#proved(refused, async () => {
      const { verifyAuthenticationResponse } = await loadLibrary()
      refuseFrames(signed.clientDataJSON)
      const { verified, authenticationInfo } = await verifyAuthenticationResponse({
        response: { ...response, response: signed, clientExtensionResults: {} },
        expectedChallenge: challenge => this.#challenges.isGood(challenge, logInPurpose(rpId)),
        expectedOrigin: place.origin,
        expectedRPID: rpId,
        credential: { id: passkey.id, publicKey: Uint8Array.from(passkey.publicKey), counter: passkey.counter },
        requireUserVerification: true,
      })
      if (!verified) throw new Error('not verified')
      return authenticationInfo.newCounter
    })
    // Another request may have used the challenge, or removed the passkey, during verification.
    if (!this.#challenges.use(challengeOf(signed.clientDataJSON)) || passkeyById(db, passkey.id) === null) {
      throw unproved(refused)
    }
    const now = this.#deps.personOf(passkey.actor)
    if (now === null) throw new Fault('forbidden', `${passkey.actor} is no administrator of this host any more.`)
    if (this.#deps.mayWrite()) notePasskeyUse(db, { id: passkey.id, counter, nowMs: clock.nowMs() })
    return { person: { ...now, role: lowerRole(passkey.role, now.role) }, passkeyId: passkey.id }
  }

  /** Returns a person's passkeys for a name. Fault conflict if the limit is reached. */
  #ownAt({ actor }: Person, rpId: string): Passkey[] {
    const own = passkeysOf(this.#deps.db, actor).filter(passkey => passkey.rpId === rpId)
    if (own.length >= passkeysPerActorMax || countPasskeys(this.#deps.db) >= passkeysMax) {
      throw new Fault('conflict', `${actor} has ${own.length} passkeys here, which are enough; remove one first.`)
    }
    return own
  }

  /** Returns the user handle: the same for all passkeys of a person, and not a name (WebAuthn level 3, 14.6.1). */
  #handleOf(actor: string): Uint8Array<ArrayBuffer> {
    const digest = new Bun.CryptoHasher('sha256').update(`strongroom user ${this.#deps.hostId} ${actor}`).digest()
    return new Uint8Array(digest)
  }

  /** Runs a verification. The sender only receives a rejection; the reason is logged. */
  async #proved<T>(what: string, verify: () => Promise<T>): Promise<T> {
    try {
      return await verify()
    } catch (error) {
      this.#deps.log.debug('a passkey did not prove itself', { error })
      throw unproved(what)
    }
  }
}

const refused = 'sign-in was refused'

function unproved(what: string): Fault {
  return new Fault(
    'forbidden',
    `The ${what}: the passkey did not prove itself. Try again, or use a link of: strongroom console open`,
  )
}

/** Returns the domain name for passkeys. Fault conflict if there is none. */
function requiredRpId({ hostName }: PasskeyOrigin): string {
  const { rp_id: rpId, why } = passkeyPlace(hostName)
  if (rpId === null) throw new Fault('conflict', why ?? '')
  return rpId
}

function creationPurpose(sessionId: string, rpId: string): string {
  return `create ${rpId} ${sessionId}`
}

function logInPurpose(rpId: string): string {
  return `get ${rpId}`
}

function challengeOf(clientDataJson: string): string {
  const challenge: unknown = Reflect.get(Object(clientDataIn(clientDataJson)), 'challenge')
  return typeof challenge === 'string' ? challenge : ''
}

/** Rejects a passkey requested in a frame: no page of another origin can frame the console. */
function refuseFrames(clientDataJson: string): void {
  if (Reflect.get(Object(clientDataIn(clientDataJson)), 'crossOrigin') === true) throw new Error('made in a frame')
}

function clientDataIn(text: string): unknown {
  return JSON.parse(new TextDecoder().decode(fromBase64Url(text) ?? utf8('null')))
}

/**
 * Rejects certificates, because the library would query the hosts they name for revocations. The console requests none
 * (`none`).
 */
async function refuseCertificates(attestationObject: string): Promise<void> {
  const { decodeAttestationObject } = await import('@simplewebauthn/server/helpers')
  const decoded = decodeAttestationObject(Uint8Array.from(fromBase64Url(attestationObject) ?? []))
  const format = decoded.get('fmt')
  const isSelf = format === 'packed' && decoded.get('attStmt').get('x5c') === undefined
  if (format !== 'none' && !isSelf) throw new Error(`attestation ${format}, but none was requested`)
}

function loadLibrary() {
  return import('@simplewebauthn/server')
}
