// The operator key: the ID key with which this host signs the ID block of every launch (AMD 56860 rev 1.58, 8.18). Its digest is in every
// report, so that relying parties can tell VMs of this operator from others. Effects: two files of the state directory.
//
// It is made once and never replaced by us: another key is another identity, and whoever pins the digest refuses it.

import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { publicIdKey } from '../attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../attest/launch/id-block-verify.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'

export type OperatorKey = {
  readonly keyFile: string
  /** For relying parties: SubjectPublicKeyInfo, PEM. */
  readonly publicFile: string
  readonly publicPem: string
  /** SHA-384 of the key's structure: ID_KEY_DIGEST in reports. */
  readonly digest: Uint8Array
  readonly keys: CryptoKeyPair
}

const P384 = { name: 'ECDSA', namedCurve: 'P-384' } as const

/** Opens the key of this state directory, or makes it. Fault internal: it cannot be read, or its two files do not belong together. */
export async function openOperatorKey(stateDir: string): Promise<OperatorKey> {
  const keyFile = join(stateDir, 'operator-key.pem')
  const publicFile = join(stateDir, 'operator-key.pub.pem')
  const kept = readTextOrNull(keyFile)
  const keptPublic = readTextOrNull(publicFile)
  if (kept === null && keptPublic !== null) {
    throw new Fault('internal', `${publicFile} is there without ${keyFile}; ${remedyOf('it')}`)
  }
  // The key first: killed in between, the next start finds a key whose public half nobody has seen yet.
  if (kept === null) writeFileAtomic(keyFile, newKeyPem(), { mode: 0o600 })
  const { keys, publicPem } = await readKey(keyFile, readTextOrNull(keyFile) ?? '')
  if (keptPublic === null) writeFileAtomic(publicFile, publicPem, { mode: 0o644 })
  else if (keptPublic !== publicPem) {
    throw new Fault('internal', `${keyFile} is not the key of ${publicFile}; ${remedyOf('both files')}`)
  }
  return { keyFile, publicFile, publicPem, keys, digest: await idKeyDigest(await publicIdKey(keys.publicKey)) }
}

function remedyOf(what: string): string {
  return `restore the key from the backup, or remove ${what} to get another identity: then every pin of the operator key has to change`
}

function newKeyPem(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: P384.namedCurve })
  return privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
}

async function readKey(file: string, pem: string): Promise<{ keys: CryptoKeyPair; publicPem: string }> {
  try {
    const pkcs8 = new Uint8Array(createPrivateKey(pem).export({ format: 'der', type: 'pkcs8' }))
    const half = createPublicKey(pem)
    const spki = new Uint8Array(half.export({ format: 'der', type: 'spki' }))
    const keys = {
      privateKey: await crypto.subtle.importKey('pkcs8', pkcs8, P384, false, ['sign']),
      publicKey: await crypto.subtle.importKey('spki', spki, P384, true, ['verify']),
    }
    return { keys, publicPem: half.export({ format: 'pem', type: 'spki' }).toString() }
  } catch (error) {
    // The message alone: a cause could quote the text of the key.
    throw new Fault('internal', `read ${file}: ${messageOf(error)}; ${remedyOf('it and its public half')}`)
  }
}
