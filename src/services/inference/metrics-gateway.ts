// What limits and ledger show beside the requests themselves: families for the metrics-collector. Pure.

import type { MeteringCounts } from './metering.ts'
import type { Family } from './metrics-text.codec.ts'

export type GatewayGauges = {
  readonly metering: () => MeteringCounts
  /** Requests under way. */
  readonly running: () => number
  /** Requests that wait for an upstream. */
  readonly queued: () => number
  readonly upstreams: () => readonly UpstreamGauges[]
}

export type UpstreamGauges = {
  /** As configured. */
  readonly name: string
  readonly outstanding: number
  readonly healthy: boolean
}

export function gatewayFamilies(gauges: GatewayGauges): Family[] {
  const { written, lost, waiting } = gauges.metering()
  const upstreams = gauges.upstreams()
  return [
    gauge('strongroom_gateway_requests_running', 'Requests under way.', gauges.running()),
    gauge('strongroom_gateway_requests_queued', 'Requests that wait for an upstream.', gauges.queued()),
    {
      name: 'strongroom_upstream_requests_running',
      help: 'Requests under way at an upstream.',
      type: 'gauge',
      samples: upstreams.map(({ name, outstanding }) => ({ labels: { upstream: name }, value: outstanding })),
    },
    {
      name: 'strongroom_upstream_healthy',
      help: '0 while an upstream is ejected.',
      type: 'gauge',
      samples: upstreams.map(({ name, healthy }) => ({ labels: { upstream: name }, value: healthy ? 1 : 0 })),
    },
    counter('strongroom_usage_records_total', 'Usage records in the ledger since the start.', written),
    counter('strongroom_usage_records_lost_total', 'Usage records that the ledger refused or had no room for.', lost),
    gauge('strongroom_usage_records_waiting', 'Usage records on their way into the ledger.', waiting),
  ]
}

function gauge(name: string, help: string, value: number): Family {
  return { name, help, type: 'gauge', samples: [{ labels: {}, value }] }
}

function counter(name: string, help: string, value: number): Family {
  return { name, help, type: 'counter', samples: [{ labels: {}, value }] }
}
