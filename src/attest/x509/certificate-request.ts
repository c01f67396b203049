// A certificate request (PKCS #10, RFC 2986) for a P-256 key, with at most one name. Pure.

import { utf8 } from '../../base/bytes.ts'
import { TAG } from '../encoding/der.ts'
import { derElement, derOid } from '../encoding/der-writer.ts'

const oid = {
  commonName: derOid('2.5.4.3'),
  subjectAltName: derOid('2.5.29.17'),
  extensionRequest: derOid('1.2.840.113549.1.9.14'),
  ecdsaWithSha256: derOid('1.2.840.10045.4.3.2'),
} as const
/** GeneralName dNSName (RFC 5280 4.2.1.6), an implicit IA5String. */
const dnsNameTag = 0x82

/** `spki`: DER. `sign`: makes a signature by ECDSA with SHA-256, DER. */
export type RequestingKey = { readonly spki: Uint8Array; readonly sign: (message: Uint8Array) => Uint8Array }

/**
 * DER. `name`: the only DNS name, in its ASCII form; null for a request where only the key counts, whose subject is
 * `CN=strongroom`.
 */
export function requestBy({ spki, sign }: RequestingKey, name: string | null): Uint8Array {
  const info = sequence(
    derElement(TAG.integer, Uint8Array.of(0)),
    // A long name would not fit a common name (64 characters), so it is in the extension alone.
    name === null
      ? sequence(derElement(TAG.set, sequence(oid.commonName, derElement(TAG.utf8String, utf8('strongroom')))))
      : sequence(),
    spki,
    derElement(TAG.context0, ...(name === null ? [] : [namesRequested(name)])),
  )
  // No unused bits (X.690 8.6.2).
  return sequence(info, sequence(oid.ecdsaWithSha256), derElement(TAG.bitString, Uint8Array.of(0), sign(info)))
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
