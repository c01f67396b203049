// Expiry of this appliance's certificates, and failed ACME orders, as metrics. Pure except for reading them.

import { family, metricsText } from '../base/prometheus.ts'
import type { Tls } from '../http/certificate.ts'

export function createCertificateMetrics(tls: Pick<Tls, 'expiries' | 'acme'>): { readonly render: () => string } {
  const help =
    'When a certificate of this appliance ends, seconds since 1970: of the server, of its authority, and of the two for instances.'
  return {
    render: () => {
      const ends = tls
        .expiries()
        .map(({ name, notAfterMs }) => [{ certificate: name }, Math.floor(notAfterMs / 1000)] as const)
      const expiries = family('strongroom_certificate_expiry_timestamp_seconds', help, 'gauge', ends)
      return metricsText([expiries, ...acmeMetrics(tls.acme() ?? [])])
    },
  }
}

function acmeMetrics(names: NonNullable<ReturnType<Tls['acme']>>) {
  if (names.length === 0) return []
  const samplesOf = (msOf: (name: (typeof names)[number]) => number | null) =>
    names.map(row => [{ name: row.name, holder: row.holder }, Math.floor((msOf(row) ?? 0) / 1000)] as const)
  return [
    family(
      'strongroom_acme_certificate_expiry_timestamp_seconds',
      'When the certificate by ACME of a name ends, seconds since 1970; 0: there is none.',
      'gauge',
      samplesOf(row => row.expiresAtMs),
    ),
    family(
      'strongroom_acme_last_failure_timestamp_seconds',
      'When the newest order of a name failed, seconds since 1970; 0: it did not.',
      'gauge',
      samplesOf(row => row.failure?.atMs ?? null),
    ),
  ]
}
