// The signature of a backup's manifest by the operator key (ECDSA P-384 with SHA-384). Pure, but WebCrypto draws
// randomness for signatures.
//
// The manifest has the digest, path and mode of every file, the time and the host, so the signature covers them all.
// The same key signs ID blocks, which are 96 bytes; a signed manifest is longer and begins with its own context.

import { type Static, Type } from '@sinclair/typebox'
import { webBytes } from '../attest/hash.ts'
import { publicIdKey } from '../attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../attest/launch/id-block-verify.ts'
import { concat, equalConstantTime, toHex, utf8 } from '../base/bytes.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { checkedJson } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { type P384Key, readP384Key } from '../linux/keys/p384-key.ts'

export const signatureName = 'manifest.sig'
export const signatureBytesMax = 1_024

/** SHA-384 of the ID key that must have signed; 'any' skips the check, for a backup without a signature too. */
export type ExpectedSigner = Uint8Array | 'any'

const context = utf8('strongroom/backup-manifest/v2\n')
const curve = { name: 'ECDSA', namedCurve: 'P-384' } as const
const algorithm = { name: 'ECDSA', hash: 'SHA-384' } as const

const ManifestSignature = Closed({
  /** Uncompressed point. A restore trusts it only by its digest. */
  public_key: Type.String({ pattern: '^04[0-9a-f]{192}$' }),
  /** r and s. */
  signature: Type.String({ pattern: '^[0-9a-f]{192}$' }),
})
type ManifestSignature = Static<typeof ManifestSignature>

export type BackupSigner = { readonly key: P384Key; readonly digest: Uint8Array }

/** Returns the signer of a private key in PEM. Fault internal if `file` holds no such key. */
export async function signerOf(pem: Uint8Array, file: string): Promise<BackupSigner> {
  try {
    const key = await readP384Key(new TextDecoder().decode(pem))
    return { key, digest: await idKeyDigest(await publicIdKey(key.keys.publicKey)) }
  } catch (error) {
    // Without the cause, which could quote the text of the key.
    throw new Fault('internal', `Cannot sign the backup: ${file}: ${messageOf(error)}; ${unsignedRemedy}`)
  }
}

export const unsignedRemedy =
  'restore the operator key, or leave the backup unsigned with `strongroom backup --unsigned`'

/** Returns the content of `manifest.sig`. */
export async function signManifest(manifest: Uint8Array, { key }: BackupSigner): Promise<Uint8Array> {
  const raw = await crypto.subtle.exportKey('raw', key.keys.publicKey)
  const signature = await crypto.subtle.sign(algorithm, key.keys.privateKey, messageOfManifest(manifest))
  const content: ManifestSignature = {
    public_key: toHex(new Uint8Array(raw)),
    signature: toHex(new Uint8Array(signature)),
  }
  return utf8(`${JSON.stringify(content)}\n`)
}

/**
 * Returns the digest of the key that signed; null if nothing was checked. `signature` is null if the backup has none.
 * Fault invalid_request if the expected key did not sign these bytes.
 */
export async function checkSignature(
  manifest: Uint8Array,
  signature: Uint8Array | null,
  expected: ExpectedSigner,
): Promise<Uint8Array | null> {
  if (expected === 'any') return null
  if (signature === null) {
    throw refused('the backup is not signed; --unsigned restores it if you are sure that you made it yourself')
  }
  const signed = checkedJson(ManifestSignature, signature, { what: signatureName, code: 'invalid_request' })
  const publicKey = await importPublic(Uint8Array.fromHex(signed.public_key))
  const digest = await idKeyDigest(await publicIdKey(publicKey))
  // The message leaves the found digest out: it is the backup's own, and an operator might paste it as the option.
  if (!equalConstantTime(digest, expected)) {
    throw refused(
      `the backup is not signed with the operator key ${toHex(expected)}, but with another one; use a backup of your own host, or the digest of an earlier key from your own record`,
    )
  }
  const bytes = webBytes(Uint8Array.fromHex(signed.signature))
  if (await crypto.subtle.verify(algorithm, publicKey, bytes, messageOfManifest(manifest))) return digest
  throw refused(
    'the signature of the manifest does not fit its content: the backup was changed; use another copy of it',
  )
}

async function importPublic(point: Uint8Array): Promise<CryptoKey> {
  try {
    return await crypto.subtle.importKey('raw', webBytes(point), curve, true, ['verify'])
  } catch {
    throw refused(`${signatureName}: public_key is not a point of P-384; use another copy of the backup`)
  }
}

function messageOfManifest(manifest: Uint8Array): Uint8Array<ArrayBuffer> {
  return webBytes(concat(context, manifest))
}

function refused(message: string): Fault {
  return new Fault('invalid_request', message, { param: 'operator-key' })
}
