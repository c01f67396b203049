// The SubjectPublicKeyInfo of certificates and private keys, and its digest, which attestations name. Pure: no files.

import { createHash, createPublicKey, X509Certificate } from 'node:crypto'

/**
 * SHA-256 of the SubjectPublicKeyInfo (RFC 5280 4.1.2.7) of a certificate, DER or PEM, or of the first of a PEM chain.
 * Throws on anything else.
 */
export function spkiDigestOf(certificate: Uint8Array | string): Uint8Array {
  const { publicKey } = new X509Certificate(typeof certificate === 'string' ? certificate : Buffer.from(certificate))
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return new Uint8Array(createHash('sha256').update(spki).digest())
}

/** SubjectPublicKeyInfo, DER, of a private key (PEM). Throws on anything else. */
export function spkiOf(key: string): Uint8Array {
  return new Uint8Array(createPublicKey(key).export({ format: 'der', type: 'spki' }))
}

/** SHA-256 of a SubjectPublicKeyInfo (DER), in hexadecimal. */
export function spkiSha256Of(spki: Uint8Array): string {
  return createHash('sha256').update(spki).digest('hex')
}
