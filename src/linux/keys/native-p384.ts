// ECDSA on P-384 with SHA-384 by the runtime. No effects.

import { createPublicKey, verify } from 'node:crypto'

/** SubjectPublicKeyInfo of a key on P-384, up to its uncompressed point: RFC 5480 section 2. */
const spkiHead = Buffer.from('3076301006072a8648ce3d020106052b81040022036200', 'hex')

/** Implements VerifyP384 of attest/nvidia/signature.ts. Throws on bytes that are no point. */
export function nativeP384(signature: Uint8Array, bytes: Uint8Array, point: Uint8Array): boolean {
  const key = createPublicKey({ key: Buffer.concat([spkiHead, point]), format: 'der', type: 'spki' })
  return verify('sha384', bytes, { key, dsaEncoding: 'ieee-p1363' }, signature)
}
