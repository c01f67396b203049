// What Prometheus reads: the collectors' parts, one after the other. Effects: what the collectors read.

import { type Collector, metricsContentType } from '../../base/prometheus.ts'

export type MetricsHandler = () => Response

export function createMetricsHandler(collectors: readonly Collector[]): MetricsHandler {
  return () =>
    new Response(collectors.map(collector => collector.render()).join(''), {
      headers: { 'content-type': metricsContentType },
    })
}
