// Ends of this appliance's certificates as a metric. Pure but for the look at them.

import { metricsText } from '../base/prometheus.ts'
import type { Tls } from '../http/certificate.ts'

export function createCertificateMetrics(tls: Pick<Tls, 'expiries'>): { readonly render: () => string } {
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
      ]),
  }
}
