// Signs ID blocks with the owner's keys, which the caller passes. Pure, except that WebCrypto uses randomness to sign.

import { webBytes } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { type IdAuth, type IdBlock, type IdSignature, writeIdAuth, writeIdBlock } from './id-block.ts'
import { coordinateBytes, type IdKey, writeIdKey } from './id-key.ts'

/** ECDSA P-384 key pairs of WebCrypto. */
export type IdKeys = { readonly idKey: CryptoKeyPair; readonly authorKey?: CryptoKeyPair }

/** Returns ID_BLOCK and ID_AUTH, the pages that a launch takes. Throws Malformed if a key is not on P-384. */
export async function signIdBlock(
  block: IdBlock,
  keys: IdKeys,
): Promise<{ idBlock: Uint8Array; idAuth: Uint8Array; auth: IdAuth }> {
  const idBlock = writeIdBlock(block)
  const idKey = await publicIdKey(keys.idKey.publicKey)
  const idSignature = await sign(keys.idKey.privateKey, idBlock)
  const author = keys.authorKey === undefined ? null : await authorOf(keys.authorKey, idKey)
  const auth = { idKey, idSignature, author }
  return { idBlock, idAuth: writeIdAuth(auth), auth }
}

/** Returns the point of a public key, for its structure and digest. */
export async function publicIdKey(key: CryptoKey): Promise<IdKey> {
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', key))
  wellFormed(raw.length === 1 + 2 * coordinateBytes && raw[0] === 4, 'ID key: not an uncompressed point of P-384')
  return { x: raw.slice(1, 1 + coordinateBytes), y: raw.slice(1 + coordinateBytes) }
}

async function authorOf(pair: CryptoKeyPair, idKey: IdKey): Promise<NonNullable<IdAuth['author']>> {
  return { key: await publicIdKey(pair.publicKey), signature: await sign(pair.privateKey, writeIdKey(idKey)) }
}

async function sign(key: CryptoKey, bytes: Uint8Array): Promise<IdSignature> {
  const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
  const raw = new Uint8Array(await crypto.subtle.sign(algorithm, key, webBytes(bytes)))
  wellFormed(raw.length === 2 * coordinateBytes, 'ID key: not a P-384 signature')
  return { r: raw.slice(0, coordinateBytes), s: raw.slice(coordinateBytes) }
}
