// OCSP requests (RFC 6960 section 4.1) in the form that NVIDIA's verifier sends: one certificate, named by SHA-384, and
// unsigned. Without a nonce: the relying party's policy limits the age of responses. Pure.

import { concat, fromHex } from '../../base/bytes.ts'
import { TAG } from '../encoding/der.ts'
import { derElement, derOid } from '../encoding/der-writer.ts'
import { sha384 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import type { Certificate } from '../x509/certificate.ts'

/** Throws Malformed if the issuer's key is not on P-384. */
export function encodeOcspRequest(certificate: Certificate, issuer: Certificate): Uint8Array {
  wellFormed(issuer.publicKey.kind === 'p-384', 'OCSP request: the key of the issuer is not on P-384')
  const serial = fromHex(certificate.serial) ?? new Uint8Array(1)
  const certificateId = derElement(
    TAG.sequence,
    derElement(TAG.sequence, derOid('2.16.840.1.101.3.4.2.2'), Uint8Array.of(0x05, 0)),
    derElement(TAG.octetString, sha384(certificate.issuer)),
    derElement(TAG.octetString, sha384(issuer.publicKey.point)),
    // An INTEGER with its top bit set would be negative.
    derElement(TAG.integer, (serial[0] ?? 0) >= 0x80 ? concat(Uint8Array.of(0), serial) : serial),
  )
  const requests = derElement(TAG.sequence, derElement(TAG.sequence, certificateId))
  return derElement(TAG.sequence, derElement(TAG.sequence, requests))
}
