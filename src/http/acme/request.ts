// A certificate request (PKCS #10, RFC 2986) for a P-256 key, with at most one name. Effects: the randomness of the
// signature.

import { createPrivateKey, sign } from 'node:crypto'
import { TAG } from '../../attest/encoding/der.ts'
import { derElement, derOid } from '../../attest/encoding/der-writer.ts'
import { utf8 } from '../../base/bytes.ts'
import { spkiOf } from '../../linux/keys/spki.ts'

const oid = {
  commonName: derOid('2.5.4.3'),
  subjectAltName: derOid('2.5.29.17'),
  extensionRequest: derOid('1.2.840.113549.1.9.14'),
  ecdsaWithSha256: derOid('1.2.840.10045.4.3.2'),
} as const
/** GeneralName dNSName (RFC 5280 4.2.1.6), an implicit IA5String. */
const dnsNameTag = 0x82

/**
 * DER. `name`: the only DNS name, in its ASCII form; null for a request where only the key counts, whose subject is
 * `CN=strongroom`. `key`: a private P-256 key as PEM.
 */
export function certificateRequest(name: string | null, key: string): Uint8Array {
  const info = sequence(
    derElement(TAG.integer, Uint8Array.of(0)),
    // A long name would not fit a common name (64 characters), so it is in the extension alone.
    name === null
      ? sequence(derElement(TAG.set, sequence(oid.commonName, derElement(TAG.utf8String, utf8('strongroom')))))
      : sequence(),
    spkiOf(key),
    derElement(TAG.context0, ...(name === null ? [] : [namesRequested(name)])),
  )
  const signature = sign('sha256', info, createPrivateKey(key))
  // No unused bits (X.690 8.6.2).
  return sequence(info, sequence(oid.ecdsaWithSha256), derElement(TAG.bitString, Uint8Array.of(0), signature))
}

/** The attribute extensionRequest (RFC 2985 5.4.2) with the extension subjectAltName. */
function namesRequested(name: string): Uint8Array {
  const names = sequence(derElement(dnsNameTag, utf8(name)))
  const extension = sequence(oid.subjectAltName, derElement(TAG.octetString, names))
  return sequence(oid.extensionRequest, derElement(TAG.set, sequence(extension)))
}

function sequence(...elements: readonly Uint8Array[]): Uint8Array {
  return derElement(TAG.sequence, ...elements)
}
