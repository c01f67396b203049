// Queries of the DNS server as metrics. Pure except for reading the counts.

import { family, metricsText } from '../../base/prometheus.ts'
import type { DnsServer } from './server.ts'

export function createDnsMetrics(server: Pick<DnsServer, 'answers'>): { readonly render: () => string } {
  const help = 'Queries of the DNS server by response code; none: no response, such as over the rate.'
  return {
    render: () => {
      const samples = server.answers().map(({ outcome, count }) => [{ rcode: outcome }, count] as const)
      return metricsText([family('strongroom_dns_queries_total', help, 'counter', samples)])
    },
  }
}
