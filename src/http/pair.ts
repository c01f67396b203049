// A certificate chain with its private key, as PEM. Pure: no files.

import { createPrivateKey, X509Certificate } from 'node:crypto'
import { messageOf } from '../base/fault.ts'

export type TlsPair = {
  /** PEM, leaf first. */
  readonly cert: string
  /** PEM. */
  readonly key: string
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** SHA-256 of the leaf, colon-separated hex, as openssl prints it. */
  readonly fingerprint: string
  /** The leaf's names, as node prints them: `DNS:a, IP Address:1.2.3.4`. */
  readonly names: string
}

/** A certificate by SNI (RFC 6066 section 3), for the key of the pair in service: receipts name one key for all. */
export type NamedCertificate = { readonly serverName: string; readonly cert: string }

export type PairVerdict =
  | { readonly ok: true; readonly pair: TlsPair }
  | { readonly ok: false; readonly reason: string }

/** Whether certificate and key match and can be served. Callers check the dates. */
export function readPair(cert: string, key: string): PairVerdict {
  let leaf: X509Certificate
  try {
    const blocks = cert.match(PEM_CERTIFICATE) ?? []
    if (blocks.length === 0) return { ok: false, reason: 'the certificate file holds no PEM certificate' }
    const [first = ''] = blocks
    leaf = new X509Certificate(first)
    for (const block of blocks.slice(1)) new X509Certificate(block)
  } catch (error) {
    return { ok: false, reason: `the certificate cannot be read: ${messageOf(error)}` }
  }
  try {
    if (!leaf.checkPrivateKey(createPrivateKey(key))) {
      return { ok: false, reason: 'the private key does not belong to the certificate' }
    }
  } catch {
    // The library's message could quote the text; a key is never logged.
    return { ok: false, reason: 'the private key cannot be read; it must be PEM without a passphrase' }
  }
  if (leaf.ca) return { ok: false, reason: 'the first certificate of the file is a CA, not a server certificate' }
  return {
    ok: true,
    pair: {
      cert,
      key,
      notBeforeMs: Date.parse(leaf.validFrom),
      notAfterMs: Date.parse(leaf.validTo),
      fingerprint: leaf.fingerprint256,
      names: leaf.subjectAltName ?? '',
    },
  }
}

export const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

/** The names of a certificate, from `TlsPair.names`. */
export function namesIn(subjectAltName: string): string[] {
  return subjectAltName.split(', ').map(entry => entry.slice(entry.indexOf(':') + 1))
}
