// Both halves of a private key on P-384 in PEM, for WebCrypto. Pure; throws whatever the PEM is refused with.

import { createPrivateKey, createPublicKey } from 'node:crypto'

const P384 = { name: 'ECDSA', namedCurve: 'P-384' } as const

export type P384Key = {
  readonly keys: CryptoKeyPair
  /** SubjectPublicKeyInfo. */
  readonly publicPem: string
}

/** PKCS#8, or what `openssl ecparam -genkey` prints. */
export async function readP384Key(pem: string): Promise<P384Key> {
  const pkcs8 = new Uint8Array(createPrivateKey(pem).export({ format: 'der', type: 'pkcs8' }))
  const half = createPublicKey(pem)
  const spki = new Uint8Array(half.export({ format: 'der', type: 'spki' }))
  const keys = {
    privateKey: await crypto.subtle.importKey('pkcs8', pkcs8, P384, false, ['sign']),
    publicKey: await crypto.subtle.importKey('spki', spki, P384, true, ['verify']),
  }
  return { keys, publicPem: half.export({ format: 'pem', type: 'spki' }).toString() }
}
