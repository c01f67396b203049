// Signatures of certificates and CRLs: RSASSA-PSS with SHA-384 only (AMD 57230). Pure, with WebCrypto.

import { webBytes } from '../hash.ts'
import type { Certificate, SignatureAlgorithm } from './certificate.ts'

/** Fields that certificates and CRLs share. */
type Signed = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly signature: Uint8Array
}

/** Key limits. AMD's keys have 4096 bits; simulated ones may have 2048. */
const RSA_LIMITS = { modulusBitsMin: 2048, modulusBitsMax: 4096, exponentHex: '010001' } as const

/** Length of the salt in bytes, as in every AMD certificate. */
export const pssSaltBytes = 48

/** Returns a fault in the algorithms; null if there is none. */
export function algorithmFault(signed: Signed, issuer: Certificate): string | null {
  if (signed.signatureAlgorithm !== 'rsa-pss-sha384')
    return 'not signed with RSASSA-PSS, SHA-384 and a salt of 48 bytes'
  const key = issuer.publicKey
  if (key.kind !== 'rsa') return 'the issuer has no RSA key'
  const { modulusBitsMin, modulusBitsMax, exponentHex } = RSA_LIMITS
  if (key.modulusBits < modulusBitsMin || key.modulusBits > modulusBitsMax)
    return `an RSA key of ${key.modulusBits} bits`
  return key.exponentHex === exponentHex ? null : 'an RSA exponent other than 65537'
}

/** Reports whether the issuer signed it. False also for algorithms and keys that are not allowed. Never throws. */
export async function isSignedBy(signed: Signed, issuer: Certificate): Promise<boolean> {
  if (algorithmFault(signed, issuer) !== null) return false
  const { subtle } = crypto
  try {
    const algorithm = { name: 'RSA-PSS', hash: 'SHA-384' }
    const key = await subtle.importKey('spki', webBytes(issuer.publicKey.spki), algorithm, false, ['verify'])
    const parameters = { name: 'RSA-PSS', saltLength: pssSaltBytes }
    return await subtle.verify(parameters, key, webBytes(signed.signature), webBytes(signed.signedBytes))
  } catch {
    // The platform rejects the key.
    return false
  }
}
