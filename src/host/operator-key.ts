// The operator key: the ID key that signs the ID block of every launch of this host (AMD 56860 rev 1.58, 8.18). Every
// report contains its digest, so relying parties recognize VMs of this operator. Effects: three files of the state
// directory.
//
// The key is created once and never replaced by us: another key is another identity, which clients that pin the digest
// refuse. The operator may replace it; running VMs keep the key of their launch, so the digests of all earlier keys
// stay recorded.

import { generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { publicIdKey } from '../attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../attest/launch/id-block-verify.ts'
import { fromHex, toHex } from '../base/bytes.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { type P384Key, readP384Key } from '../linux/keys/p384-key.ts'

export type OperatorKey = {
  readonly keyFile: string
  /** For relying parties: SubjectPublicKeyInfo, PEM. */
  readonly publicFile: string
  readonly publicPem: string
  /** SHA-384 of the key's structure: ID_KEY_DIGEST in reports. */
  readonly digest: Uint8Array
  /**
   * Digests of every key that this host has had, including this one, because VMs launched with another may still run.
   */
  readonly owned: readonly Uint8Array[]
  readonly keys: CryptoKeyPair
}

/**
 * Opens or creates the key of this state directory. Throws Fault internal if it is unreadable, or its two files do not
 * match.
 */
export async function openOperatorKey(stateDir: string): Promise<OperatorKey> {
  const keyFile = join(stateDir, 'operator-key.pem')
  const publicFile = join(stateDir, 'operator-key.pub.pem')
  const kept = readTextOrNull(keyFile)
  const keptPublic = readTextOrNull(publicFile)
  if (kept === null && keptPublic !== null) {
    throw new Fault('internal', `${publicFile} is there without ${keyFile}; ${remedyOf('it')}`)
  }
  // Writes the private key first: after a kill in between, the next start finds a key whose public half was never
  // published.
  if (kept === null) writeFileAtomic(keyFile, newKeyPem(), { mode: 0o600 })
  const { keys, publicPem } = await readKey(keyFile, readTextOrNull(keyFile) ?? '')
  if (keptPublic === null) writeFileAtomic(publicFile, publicPem, { mode: 0o644 })
  else if (keptPublic !== publicPem) {
    throw new Fault('internal', `${keyFile} is not the key of ${publicFile}; ${remedyOf('both files')}`)
  }
  const digest = await idKeyDigest(await publicIdKey(keys.publicKey))
  const owned = ownedKeys(join(stateDir, 'operator-keys.txt'), digest)
  return { keyFile, publicFile, publicPem, keys, digest, owned }
}

const digestBytes = 48

/** Returns the digests, and adds this one. The file has one per line, hexadecimal, the oldest first. */
function ownedKeys(file: string, digest: Uint8Array): readonly Uint8Array[] {
  const lines = (readTextOrNull(file) ?? '').split('\n').filter(line => line !== '')
  const kept = lines.map((line, index) => {
    const bytes = fromHex(line)
    if (bytes?.length === digestBytes) return bytes
    throw new Fault(
      'internal',
      `${file}, line ${index + 1}: no SHA-384 in hexadecimal; restore the file from the backup, or remove it: then VMs that were launched with an earlier key are attested no more`,
    )
  })
  if (lines.includes(toHex(digest))) return kept
  writeFileAtomic(file, `${[...lines, toHex(digest)].join('\n')}\n`, { mode: 0o644 })
  return [...kept, digest]
}

function remedyOf(what: string): string {
  return `restore the key from the backup, or remove ${what} to get another identity: then every pin of the operator key has to change`
}

function newKeyPem(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  return privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
}

async function readKey(file: string, pem: string): Promise<P384Key> {
  try {
    return await readP384Key(pem)
  } catch (error) {
    // Without the cause, which could quote the text of the key.
    throw new Fault('internal', `read ${file}: ${messageOf(error)}; ${remedyOf('it and its public half')}`)
  }
}
