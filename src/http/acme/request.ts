// A certificate request (PKCS #10, RFC 2986) for a key, with at most one name. Effects: none but randomness of the
// signature.

import { loadX509 } from '../../attest/x509/runtime.ts'

const signingAlgorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const

/** DER. `name`: the only name in it; null: none, where just the key counts. */
export async function certificateRequest(name: string | null, keys: CryptoKeyPair): Promise<Uint8Array> {
  const x509 = await loadX509()
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    // Names are in the extension; a long one would not fit a common name (64 characters).
    ...(name === null ? { name: 'CN=strongroom' } : {}),
    keys,
    signingAlgorithm,
    extensions: name === null ? [] : [new x509.SubjectAlternativeNameExtension([{ type: 'dns', value: name }])],
  })
  return new Uint8Array(request.rawData)
}
