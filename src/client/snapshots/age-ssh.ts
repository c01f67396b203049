// SSH private keys as identities of age: stanzas `ssh-ed25519` and `ssh-rsa` (agessh of the reference implementation,
// filippo.io/age). Pure.

import { constants, createHash, createPrivateKey, type KeyObject, privateDecrypt } from 'node:crypto'
import { chacha20poly1305 } from '@noble/ciphers/chacha.js'
import { ed25519, x25519 } from '@noble/curves/ed25519.js'
import { hkdf } from '@noble/hashes/hkdf.js'
import { sha256, sha512 } from '@noble/hashes/sha2.js'
import type { Identity, Stanza } from 'age-encryption'
import { concat, fromBase64, toBase64, utf8 } from '../../base/bytes.ts'
import { readStrings } from './ssh-signature.ts'

/** An unencrypted private key, and its public half in wire format. */
export type SshPrivateKey = { readonly blob: Uint8Array } & (
  | { readonly type: 'ssh-ed25519'; readonly seed: Uint8Array }
  | { readonly type: 'ssh-rsa'; readonly key: KeyObject }
)

const ed25519Label = utf8('age-encryption.org/v1/ssh-ed25519')
const rsaLabel = 'age-encryption.org/v1/ssh-rsa'
const fileKeyBytes = 16

export function sshIdentity(key: SshPrivateKey): Identity {
  const tag = sshTag(key.blob)
  return {
    unwrapFileKey: stanzas => {
      const own = stanzas.filter(({ args: [type, of] }) => type === key.type && of === tag)
      for (const stanza of own) {
        const fileKey = key.type === 'ssh-rsa' ? unwrapRsa(key.key, stanza) : unwrapEd25519(key, stanza)
        if (fileKey !== null) return fileKey
      }
      return null
    },
  }
}

/** Names the key of a stanza: the first bytes of the SHA-256 of the key in wire format. */
export function sshTag(blob: Uint8Array): string {
  return unpadded(createHash('sha256').update(blob).digest().subarray(0, 4))
}

function unwrapEd25519(
  { blob, seed }: { blob: Uint8Array; seed: Uint8Array },
  { args, body }: Stanza,
): Uint8Array | null {
  const share = fromBase64(padded(args[2] ?? ''))
  if (args.length !== 3 || share?.length !== 32 || body.length !== fileKeyBytes + 16)
    throw new Error('a stanza is damaged')
  const point = ed25519.utils.toMontgomery(ed25519.getPublicKey(seed))
  const scalar = sha512(seed).subarray(0, 32)
  const tweak = hkdf(sha256, new Uint8Array(), blob, ed25519Label, 32)
  const shared = x25519.scalarMult(tweak, x25519.scalarMult(scalar, share))
  return opened(hkdf(sha256, shared, concat(share, point), ed25519Label, 32), body)
}

function opened(key: Uint8Array, body: Uint8Array): Uint8Array | null {
  try {
    return chacha20poly1305(key, new Uint8Array(12)).decrypt(body)
  } catch {
    return null
  }
}

function unwrapRsa(key: KeyObject, { body }: Stanza): Uint8Array | null {
  try {
    const padding = { padding: constants.RSA_PKCS1_OAEP_PADDING, oaepHash: 'sha256', oaepLabel: Buffer.from(rsaLabel) }
    const fileKey = privateDecrypt({ key, ...padding }, body)
    return fileKey.length === fileKeyBytes ? new Uint8Array(fileKey) : null
  } catch {
    return null
  }
}

const pemPattern = /-----BEGIN OPENSSH PRIVATE KEY-----\s([A-Za-z0-9+/=\s]+)-----END OPENSSH PRIVATE KEY-----/
const keyMagic = 'openssh-key-v1\0'

/**
 * `encrypted`: it has a passphrase. `other`: it is not in OpenSSH's format. `unsupported`: age encrypts to no key of
 * this type.
 */
export type ReadKey =
  | { readonly kind: 'key'; readonly key: SshPrivateKey }
  | { readonly kind: 'encrypted'; readonly blob: Uint8Array }
  | { readonly kind: 'other' | 'unsupported' }

/** Reads a private key file of OpenSSH (PROTOCOL.key). */
export function readSshPrivateKey(text: string): ReadKey {
  const [, base64 = ''] = pemPattern.exec(text) ?? []
  const bytes = Buffer.from(base64, 'base64')
  if (bytes.subarray(0, keyMagic.length).toString('latin1') !== keyMagic) return { kind: 'other' }
  // Cipher, its key derivation and its options, a count, the public key, the private part.
  const head = readCounted(bytes.subarray(keyMagic.length))
  if (head === null) return { kind: 'other' }
  const [cipher, blob, secret] = head
  if (cipher.toString('latin1') !== 'none') return { kind: 'encrypted', blob }
  const [type, ...values] = readPrefixOfStrings(secret.subarray(8))
  switch (type?.toString('latin1')) {
    case 'ssh-ed25519': {
      const [, pair] = values
      if (pair?.length !== 64) return { kind: 'other' }
      return { kind: 'key', key: { type: 'ssh-ed25519', blob, seed: new Uint8Array(pair.subarray(0, 32)) } }
    }
    case 'ssh-rsa':
      if (values.length < 6) return { kind: 'other' }
      return { kind: 'key', key: { type: 'ssh-rsa', blob, key: rsaKey(values) } }
    default:
      return { kind: 'unsupported' }
  }
}

function readCounted(bytes: Buffer): [cipher: Buffer, blob: Buffer, secret: Buffer] | null {
  const strings = readPrefixOfStrings(bytes, 3)
  const [cipher] = strings
  const at = strings.reduce((sum, { length }) => sum + 4 + length, 0)
  if (cipher === undefined || strings.length !== 3 || bytes.length < at + 4 || bytes.readUInt32BE(at) !== 1) return null
  const [blob, secret] = readStrings(bytes.subarray(at + 4)) ?? []
  return blob === undefined || secret === undefined ? null : [cipher, blob, secret]
}

/** The strings at the beginning, up to what is none, such as padding. */
function readPrefixOfStrings(bytes: Buffer, countMax = 8): Buffer[] {
  const strings: Buffer[] = []
  let at = 0
  while (strings.length < countMax && at + 4 <= bytes.length) {
    const end = at + 4 + bytes.readUInt32BE(at)
    if (end > bytes.length) break
    strings.push(bytes.subarray(at + 4, end))
    at = end
  }
  return strings
}

/** Values in OpenSSH's order: n, e, d, the inverse of q, p, q. */
function rsaKey(values: readonly Buffer[]): KeyObject {
  const [n, e, d, qi, p, q] = values.map(value => BigInt(`0x${value.toString('hex') || '0'}`)) as [
    bigint,
    bigint,
    bigint,
    bigint,
    bigint,
    bigint,
  ]
  const numbers = { n, e, d, p, q, dp: d % (p - 1n), dq: d % (q - 1n), qi }
  const jwk = Object.fromEntries(
    Object.entries(numbers).map(([name, value]) => [name, bytesOf(value).toString('base64url')]),
  )
  return createPrivateKey({ key: { kty: 'RSA', ...jwk }, format: 'jwk' })
}

function bytesOf(value: bigint): Buffer {
  const hex = value.toString(16)
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex')
}

export function unpadded(bytes: Uint8Array): string {
  return toBase64(bytes).replaceAll('=', '')
}

function padded(text: string): string {
  return text.padEnd(Math.ceil(text.length / 4) * 4, '=')
}
