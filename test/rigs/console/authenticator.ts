// A passkey device in software, written from WebAuthn level 3, 6: makes a P-256 key for each name, and signs for it.
// Pure but for the keys it draws. CBOR is written by hand: a few fixed maps.

import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto'

type Key = { readonly id: Buffer; readonly key: KeyObject; readonly publicKey: KeyObject; readonly user: string }

/** Differences from a device that keeps to the rules. */
export type Misdeed = {
  readonly origin?: string
  readonly rpId?: string
  readonly isUserVerified?: boolean
  readonly crossOrigin?: boolean
  readonly type?: string
  readonly counter?: number
  /** Flag BE (6.1.3): the key may be copied to other devices. */
  readonly isBackupEligible?: boolean
  /** Flag BS: it has been copied. */
  readonly isBackedUp?: boolean
  readonly format?: string
  /** Answers for the device by a certificate of its maker. */
  readonly maker?: { readonly certificate: Uint8Array; readonly key: KeyObject }
  readonly userHandle?: string
}

type CreationOptions = {
  readonly challenge: string
  readonly rp: { readonly id: string }
  readonly user: { readonly id: string }
}
type RequestOptions = { readonly challenge: string; readonly rpId: string }

export class Authenticator {
  readonly #origin: string
  readonly #keys = new Map<string, Key>()
  #counter = 0

  constructor(origin: string) {
    this.#origin = origin
  }

  /** RegistrationResponseJSON. */
  create(options: CreationOptions, misdeed: Misdeed = {}) {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const made: Key = { id: randomBytes(32), key: privateKey, publicKey, user: options.user.id }
    this.#keys.set(options.rp.id, made)
    const clientData = this.#clientData('webauthn.create', options.challenge, misdeed)
    const length = Buffer.from([made.id.length >> 8, made.id.length & 0xff])
    const credential = Buffer.concat([Buffer.alloc(16), length, made.id, coseKey(publicKey)])
    const data = Buffer.concat([this.#authData(misdeed.rpId ?? options.rp.id, 0x40, misdeed), credential])
    const attestation = Buffer.concat([
      Buffer.from([0xa3]),
      text('fmt'),
      text(misdeed.maker === undefined ? (misdeed.format ?? 'none') : 'packed'),
      text('attStmt'),
      misdeed.maker === undefined ? Buffer.from([0xa0]) : packed(misdeed.maker, signedBy(data, clientData)),
      text('authData'),
      bytes(data),
    ])
    return this.#response(made, {
      clientDataJSON: clientData.toString('base64url'),
      attestationObject: attestation.toString('base64url'),
    })
  }

  /** AuthenticationResponseJSON. */
  get(options: RequestOptions, misdeed: Misdeed = {}) {
    const made = this.#keys.get(options.rpId)
    if (made === undefined) throw new Error(`no passkey for ${options.rpId}`)
    const clientData = this.#clientData('webauthn.get', options.challenge, misdeed)
    const data = this.#authData(misdeed.rpId ?? options.rpId, 0, misdeed)
    const signed = signedBy(data, clientData)
    return this.#response(made, {
      clientDataJSON: clientData.toString('base64url'),
      authenticatorData: data.toString('base64url'),
      signature: sign('sha256', signed, made.key).toString('base64url'),
      userHandle: misdeed.userHandle ?? made.user,
    })
  }

  #response<Response extends object>({ id }: Key, response: Response) {
    const name = id.toString('base64url')
    return { id: name, rawId: name, type: 'public-key', response, clientExtensionResults: {} }
  }

  #clientData(type: string, challenge: string, { origin, crossOrigin = false, type: other }: Misdeed): Buffer {
    return Buffer.from(JSON.stringify({ type: other ?? type, challenge, origin: origin ?? this.#origin, crossOrigin }))
  }

  /** 6.1: the hash of the RP id, flags, a counter. */
  #authData(rpId: string, flags: number, misdeed: Misdeed): Buffer {
    const { isUserVerified = true, counter, isBackupEligible = false, isBackedUp = false } = misdeed
    this.#counter += 1
    const count = Buffer.alloc(4)
    count.writeUInt32BE(counter ?? this.#counter)
    const backup = (isBackupEligible ? 0x08 : 0) | (isBackedUp ? 0x10 : 0)
    const all = flags | 0x01 | (isUserVerified ? 0x04 : 0) | backup
    return Buffer.concat([createHash('sha256').update(rpId).digest(), Buffer.from([all]), count])
  }
}

function signedBy(authData: Buffer, clientData: Buffer): Buffer {
  return Buffer.concat([authData, createHash('sha256').update(clientData).digest()])
}

/** WebAuthn level 3, 8.2: algorithm, signature, certificate. */
function packed({ certificate, key }: NonNullable<Misdeed['maker']>, signed: Buffer): Buffer {
  const signature = bytes(sign('sha256', signed, key))
  const certificates = Buffer.concat([Buffer.from([0x81]), bytes(Buffer.from(certificate))])
  const head = Buffer.concat([Buffer.from([0xa3]), text('alg'), Buffer.from([0x26])])
  return Buffer.concat([head, text('sig'), signature, text('x5c'), certificates])
}

/** COSE_Key of EC2, ES256, P-256 (RFC 9053 7.1.1). */
function coseKey(key: KeyObject): Buffer {
  const { x = '', y = '' } = key.export({ format: 'jwk' })
  const half = (coordinate: string) => Buffer.concat([Buffer.from([0x58, 32]), Buffer.from(coordinate, 'base64url')])
  const head = Buffer.from([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21])
  return Buffer.concat([head, half(x), Buffer.from([0x22]), half(y)])
}

function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([0x60 + value.length]), Buffer.from(value)])
}

function bytes(value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([0x59, value.length >> 8, value.length & 0xff]), value])
}
