// The public key of a TLS certificate, as attestation names it. Pure: reads bytes, no files.

import { createHash, X509Certificate } from 'node:crypto'

/** SHA-256 of the SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7) of a certificate, DER or PEM; of a PEM chain, of the first. Throws on anything else. */
export function spkiDigestOf(certificate: Uint8Array | string): Uint8Array {
  const { publicKey } = new X509Certificate(typeof certificate === 'string' ? certificate : Buffer.from(certificate))
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return new Uint8Array(createHash('sha256').update(spki).digest())
}
