// Keys of a log and of its witnesses, and what they sign. Uses node:crypto; the log under test has no part in it.

import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { cosignedText, encodeCosignature } from '../../../src/attest/log/checkpoint.ts'
import { keyIdOf, type NoteKey, type NoteSignature } from '../../../src/attest/log/note.ts'
import { utf8 } from '../../../src/base/bytes.ts'

export type Signer = { readonly key: NoteKey; readonly privateKey: KeyObject }

export function newSigner(name: string, type: NoteKey['type']): Signer {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32)
  return { key: { name, type, publicKey: new Uint8Array(raw) }, privateKey }
}

/** A witness's signature has this time. */
export function signedBy({ key, privateKey }: Signer, text: string, atMs = 0): NoteSignature {
  const seconds = BigInt(Math.floor(atMs / 1000))
  const message = key.type === 'cosignature' ? cosignedText(text, seconds) : text
  const bytes = new Uint8Array(sign(null, utf8(message), privateKey))
  const signature = key.type === 'cosignature' ? encodeCosignature(seconds, bytes) : bytes
  return { name: key.name, keyId: keyIdOf(key), signature }
}
