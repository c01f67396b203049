// Verifies the signatures of an ID block and of its ID key (AMD 56860 rev 1.58, 8.18 and chapter 10). Pure.

import { concat } from '../../base/bytes.ts'
import { digest, webBytes } from '../hash.ts'
import { Malformed } from '../malformed.ts'
import { type Check, check, fail, notChecked, type Verdict, verdict } from '../verdict.ts'
import { type IdSignature, readIdAuth, readIdBlock } from './id-block.ts'
import { type IdKey, writeIdKey } from './id-key.ts'

export type IdBlockVerdict = Verdict & {
  /** SHA-384 of the key structures, as in the report; null if there is no such key. */
  readonly idKeyDigest: Uint8Array | null
  readonly authorKeyDigest: Uint8Array | null
}

/** Checks the ID key's signature over the block, and the author's signature over the ID key if there is an author. */
export async function verifyIdBlock(input: {
  readonly idBlock: Uint8Array
  readonly idAuth: Uint8Array
  readonly author: 'required' | 'any'
}): Promise<IdBlockVerdict> {
  const none = { idKeyDigest: null, authorKeyDigest: null }
  try {
    readIdBlock(input.idBlock)
    const { idKey, idSignature, author } = readIdAuth(input.idAuth)
    const keyBytes = writeIdKey(idKey)
    const isSigned = await isSignedBy(idKey, idSignature, input.idBlock)
    const isAuthored = author === null ? null : await isSignedBy(author.key, author.signature, keyBytes)
    const checks = [
      check('id-block-signature', isSigned, 'the ID key has not signed this ID block'),
      authorCheck(isAuthored, input.author),
    ]
    return {
      ...verdict(checks),
      idKeyDigest: await idKeyDigest(idKey),
      authorKeyDigest: author === null ? null : await idKeyDigest(author.key),
    }
  } catch (error) {
    if (error instanceof Malformed) return { ...verdict([fail('id-block-format', error.message)]), ...none }
    throw error
  }
}

function authorCheck(isAuthored: boolean | null, author: 'required' | 'any'): Check {
  const name = 'id-key-signature'
  if (isAuthored !== null) return check(name, isAuthored, 'the author key has not signed this ID key')
  return author === 'required' ? fail(name, 'no author key') : notChecked(name, 'no author key', false)
}

/** Returns SHA-384 of the key's structure of 0x404 bytes: ID_KEY_DIGEST or AUTHOR_KEY_DIGEST of the report. */
export async function idKeyDigest(key: IdKey): Promise<Uint8Array> {
  return digest('SHA-384', writeIdKey(key))
}

/** Returns false also if the key is not a point of the curve. */
async function isSignedBy(key: IdKey, { r, s }: IdSignature, bytes: Uint8Array): Promise<boolean> {
  const point = webBytes(concat(Uint8Array.of(4), key.x, key.y))
  const curve = { name: 'ECDSA', namedCurve: 'P-384' }
  try {
    const imported = await crypto.subtle.importKey('raw', point, curve, false, ['verify'])
    const signature = webBytes(concat(r, s))
    const algorithm = { name: 'ECDSA', hash: 'SHA-384' }
    return await crypto.subtle.verify(algorithm, imported, signature, webBytes(bytes))
  } catch {
    return false
  }
}
