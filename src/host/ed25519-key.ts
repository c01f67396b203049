// An Ed25519 key of this appliance in a separate file, created at the first start. Effects: that file.

import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'
import { writeFileAtomic } from '../linux/files.ts'

export type Ed25519Key = {
  /** 32 bytes. */
  readonly publicKey: Uint8Array
  readonly sign: (message: Uint8Array) => Uint8Array
}

/**
 * Opens or creates the key. `remedy`: for a file with another kind of key. Throws Fault internal if the file cannot be
 * read or written, or contains another kind of key.
 */
export function openEd25519Key(
  path: string,
  { what, remedy }: { readonly what: string; readonly remedy: string },
): Ed25519Key {
  const key = readIfThere(path, what) ?? makeKey(path)
  if (key.asymmetricKeyType !== 'ed25519') throw new Fault('internal', `${path} must hold an Ed25519 key; ${remedy}`)
  const { x } = createPublicKey(key).export({ format: 'jwk' })
  return {
    publicKey: Uint8Array.fromBase64(x ?? '', { alphabet: 'base64url' }),
    sign: message => new Uint8Array(sign(null, message, key)),
  }
}

function makeKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  writeFileAtomic(path, privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(), { mode: 0o600 })
  return privateKey
}

function readIfThere(path: string, what: string): KeyObject | null {
  try {
    return createPrivateKey(readFileSync(path, 'utf8'))
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read the ${what} ${path}`)
  }
}
