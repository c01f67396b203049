// Matches a host against a certificate's subjectAltName alone (RFC 6125 6.4, RFC 5280 4.2.1.6). Pure.
//
// Runtimes fall back to the common name of a certificate without DNS names, and name constraints do not bind common
// names: an authority restricted to one DNS name could then sign for any other.

import { readSequence } from '../../attest/encoding/der.ts'
import { Malformed } from '../../attest/malformed.ts'
import { decodeCertificate } from '../../attest/x509/certificate.ts'

const subjectAltName = '2.5.29.17'
/** GeneralName, IMPLICIT: a dNSName is an IA5String, an iPAddress an OCTET STRING. */
const dnsNameTag = 0x82
const addressTag = 0x87

/** The problem, or null. `host` is a DNS name, or an address of four or sixteen bytes. */
export function certificateNameProblem(der: Uint8Array, host: string | Uint8Array): string | null {
  try {
    const extension = decodeCertificate(der).extensions.get(subjectAltName)
    if (extension === undefined) return 'the certificate has no subjectAltName'
    const names = readSequence(extension.value, 'subjectAltName')
    const isFor =
      typeof host === 'string'
        ? names.some(name => name.tag === dnsNameTag && isNamed(Buffer.from(name.contents).toString('latin1'), host))
        : names.some(name => name.tag === addressTag && Buffer.compare(name.contents, host) === 0)
    return isFor ? null : 'no DNS name or address in the subjectAltName of the certificate is that of the gateway'
  } catch (error) {
    if (error instanceof Malformed) return error.message
    throw error
  }
}

/** A `*` stands for one whole label, the leftmost. */
function isNamed(pattern: string, host: string): boolean {
  const [given, wanted] = [pattern.toLowerCase(), host.toLowerCase().replace(/\.$/, '')]
  if (!given.startsWith('*.')) return given === wanted
  const rest = given.slice(1)
  return rest.split('.').length > 2 && wanted.endsWith(rest) && !wanted.slice(0, -rest.length).includes('.')
}
