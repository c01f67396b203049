// The operator's control key: signs what the host may change while a gateway VM runs. Effects: one file, made at the
// first start.
//
// Its public half is in workload.json, which binds every gateway VM of this appliance to it.

import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { toBase64Url } from '../base/bytes.ts'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'
import { writeFileAtomic } from '../linux/files.ts'

export type ControlKey = {
  /** Ed25519, base64url. */
  readonly publicKey: string
  readonly sign: (message: Uint8Array) => Uint8Array
}

/** In the state directory, for root alone. */
export function controlKeyFile(stateDir: string): string {
  return `${stateDir}/control.key`
}

/** Fault internal: the file cannot be read or written, or holds another kind of key. */
export function openControlKey(path: string): ControlKey {
  const key = readIfThere(path) ?? makeKey(path)
  if (key.asymmetricKeyType !== 'ed25519') {
    throw new Fault(
      'internal',
      `${path} must hold an Ed25519 key; remove it to get a new one, and the gateway a new VM`,
    )
  }
  const { x } = createPublicKey(key).export({ format: 'jwk' })
  return {
    publicKey: toBase64Url(Uint8Array.fromBase64(x ?? '', { alphabet: 'base64url' })),
    sign: message => sign(null, message, key),
  }
}

function makeKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  writeFileAtomic(path, privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(), { mode: 0o600 })
  return privateKey
}

function readIfThere(path: string): KeyObject | null {
  try {
    return createPrivateKey(readFileSync(path, 'utf8'))
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read the control key ${path}`)
  }
}
