// A secret that a TPM releases only if it holds both of two keys: TPM2_MakeCredential, in software. Pure.
//
// TCG TPM 2.0 Library, Part 1: section 24 (credential protection), section 11.4.10.2 (KDFa), annex B.4 (OAEP with a
// label). Supports only endorsement keys like those of an SVSM: RSA of 2048 bits with AES-128-CFB and SHA-256 (EK
// Credential Profile 2.5, template L-1).

import { hmac } from '@noble/hashes/hmac.js'
import { sha256 as nobleSha256 } from '@noble/hashes/sha2.js'
import { concat, utf8 } from '../../base/bytes.ts'
import { webBytes } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { ALGORITHM } from './algorithm.ts'
import { encodeSpki } from './key.ts'
import { decodePublicArea, isEndorsementKey, type TpmPublic } from './public-area.ts'

export const credentialSecretBytes = 32
const seedBytes = 32
const hashBytes = 32
/** TPM2B_ID_OBJECT, then TPM2B_ENCRYPTED_SECRET, as TPM2_ActivateCredential takes them. */
export const CREDENTIAL_BYTES = { idObject: 2 + 2 + hashBytes + 2 + credentialSecretBytes, secret: 2 + 256 } as const

export type CredentialParts = {
  /** TPMT_PUBLIC. */
  readonly endorsementKey: Uint8Array
  /** Name of the key that must be in the same TPM. */
  readonly name: Uint8Array
  readonly secret: Uint8Array
  /** Random bytes, as long as the secret and used once. */
  readonly seed: Uint8Array
}

/** Returns both parts, of CREDENTIAL_BYTES. Throws Malformed if the endorsement key is not supported. */
export async function makeCredential({ endorsementKey, name, secret, seed }: CredentialParts): Promise<Uint8Array> {
  wellFormed(secret.length === credentialSecretBytes && seed.length === seedBytes, 'tpm credential: secret and seed')
  const area = decodePublicArea(endorsementKey)
  const cipherKey = kdfa(seed, 'STORAGE', name, 128)
  const identity = await aesCfb(cipherKey, sized(secret))
  const mac = hmac(nobleSha256, kdfa(seed, 'INTEGRITY', new Uint8Array(0), 256), concat(identity, name))
  return concat(sized(concat(sized(mac), identity)), sized(await encryptedSeed(area, seed)))
}

/** Proves knowledge of a secret without revealing it, so a verifier learns nothing about credentials of others. */
export function activationProof(secret: Uint8Array): Uint8Array {
  return hmac(nobleSha256, secret, utf8('strongroom/tpm-activation/v1'))
}

async function encryptedSeed(area: TpmPublic, seed: Uint8Array): Promise<Uint8Array> {
  const { key, symmetric, nameHash } = area
  const isAes = symmetric !== null && symmetric.algorithm === ALGORITHM.aes && symmetric.keyBits === 128
  wellFormed(
    isEndorsementKey(area) && key.type === 'rsa' && key.modulus.length === 256 && nameHash === 'SHA-256' && isAes,
    'tpm credential: the endorsement key is not RSA of 2048 bits with AES-128-CFB and SHA-256',
  )
  wellFormed(symmetric.mode === ALGORITHM.cfb, 'tpm credential: the endorsement key is not one with CFB')
  const algorithm = { name: 'RSA-OAEP', hash: 'SHA-256' }
  const imported = await crypto.subtle.importKey('spki', webBytes(encodeSpki(key)), algorithm, false, ['encrypt'])
  const labelled = { name: 'RSA-OAEP', label: utf8('IDENTITY\0') }
  return new Uint8Array(await crypto.subtle.encrypt(labelled, imported, webBytes(seed)))
}

/** Derives key bits with SHA-256, at most its length, so one round suffices. */
function kdfa(key: Uint8Array, label: string, context: Uint8Array, bits: number): Uint8Array {
  const counted = concat(Uint8Array.of(0, 0, 0, 1), utf8(`${label}\0`), context, Uint8Array.of(0, 0, bits >> 8, bits))
  return hmac(nobleSha256, key, counted).slice(0, bits / 8)
}

const blockBytes = 16

/**
 * Encrypts with an IV of zeros. WebCrypto has only CBC: its first block over zeros, with X as IV, is the cipher of X.
 */
async function aesCfb(key: Uint8Array, plain: Uint8Array): Promise<Uint8Array> {
  const imported = await crypto.subtle.importKey('raw', webBytes(key), 'AES-CBC', false, ['encrypt'])
  const out = new Uint8Array(plain.length)
  let last = new Uint8Array(blockBytes)
  for (let at = 0; at < plain.length; at += blockBytes) {
    const algorithm = { name: 'AES-CBC', iv: last }
    const pad = new Uint8Array(await crypto.subtle.encrypt(algorithm, imported, new Uint8Array(blockBytes)))
    last = new Uint8Array(blockBytes)
    last.set(plain.subarray(at, at + blockBytes))
    for (let i = 0; i < blockBytes; i += 1) last[i] = (last[i] ?? 0) ^ (pad[i] ?? 0)
    out.set(last.subarray(0, Math.min(blockBytes, plain.length - at)), at)
  }
  return out
}

function sized(bytes: Uint8Array): Uint8Array {
  return concat(Uint8Array.of(bytes.length >> 8, bytes.length & 0xff), bytes)
}
