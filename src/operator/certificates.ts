// Ends of this appliance's certificates, and failed orders by ACME, as metrics. Pure but for the look at them.

import { metricsText } from '../base/prometheus.ts'
import type { Tls } from '../http/certificate.ts'

export function createCertificateMetrics(tls: Pick<Tls, 'expiries' | 'acme'>): { readonly render: () => string } {
  const help =
    'When a certificate of this appliance ends, seconds since 1970: of the server, of its authority, and of the two for instances.'
  return {
    render: () =>
      metricsText([
        {
          name: 'strongroom_certificate_expiry_timestamp_seconds',
          help,
          type: 'gauge',
          samples: tls
            .expiries()
            .map(({ name, notAfterMs }) => ({ labels: { certificate: name }, value: Math.floor(notAfterMs / 1000) })),
        },
        ...acmeMetrics(tls.acme() ?? []),
      ]),
  }
}

function acmeMetrics(names: NonNullable<ReturnType<Tls['acme']>>) {
  if (names.length === 0) return []
  const samplesOf = (msOf: (name: (typeof names)[number]) => number | null) =>
    names.map(row => ({
      labels: { name: row.name, holder: row.holder },
      value: Math.floor((msOf(row) ?? 0) / 1000),
    }))
  return [
    {
      name: 'strongroom_acme_certificate_expiry_timestamp_seconds',
      help: 'When the certificate by ACME of a name ends, seconds since 1970; 0: there is none.',
      type: 'gauge' as const,
      samples: samplesOf(row => row.expiresAtMs),
    },
    {
      name: 'strongroom_acme_last_failure_timestamp_seconds',
      help: 'When the newest order of a name failed, seconds since 1970; 0: it did not.',
      type: 'gauge' as const,
      samples: samplesOf(row => row.failure?.atMs ?? null),
    },
  ]
}
