// Families of router, limits and ledger for the metrics-collector. Pure.

import type { Family } from '../../base/prometheus.ts'
import type { SharedLimitsView } from '../limits/key-shares.ts'
import type { MeteringCounts } from '../metering/types.ts'
import type { EncryptionCounts } from '../types.ts'
import type { AttestedUpstream } from '../upstream/attested/keeper.ts'
import type { RouterTargetView } from '../upstream/router.ts'
import { attestedFamilies } from './attested.ts'

export type GatewayGauges = {
  readonly metering: MeteringCounts
  /** Number of running requests. */
  readonly running: number
  /** Number of requests that wait for an upstream. */
  readonly waiting: number
  readonly targets: readonly RouterTargetView[]
  /** Upstreams that must show evidence. */
  readonly attested: readonly AttestedUpstream[]
  readonly encryption: EncryptionCounts
  /** Null if one process serves all clients. */
  readonly relays: RelayGauges | null
  /** Null or absent if this gateway does not share the limits of keys. */
  readonly sharedLimits?: SharedLimitsView | null
}

export type RelayGauges = { readonly running: number; readonly restarts: number }

export function gatewayFamilies(gauges: GatewayGauges): Family[] {
  const { metering, running, waiting, targets, attested, encryption, relays } = gauges
  return [
    gauge('strongroom_gateway_requests_running', 'Requests under way.', running),
    gauge('strongroom_gateway_requests_queued', 'Requests that wait for an upstream.', waiting),
    {
      name: 'strongroom_upstream_requests_running',
      help: 'Requests under way at an upstream.',
      type: 'gauge',
      samples: targets.map(({ name, active }) => ({ labels: { upstream: name }, value: active })),
    },
    {
      name: 'strongroom_upstream_healthy',
      help: '0 while an upstream is ejected.',
      type: 'gauge',
      samples: targets.map(({ name, ejected }) => ({ labels: { upstream: name }, value: ejected ? 0 : 1 })),
    },
    ...attestedFamilies(attested),
    counter('strongroom_usage_records_total', 'Usage records in the ledger since the start.', metering.written),
    counter(
      'strongroom_usage_records_lost_total',
      'Usage records that the ledger refused or could not hold.',
      metering.lost,
    ),
    {
      name: 'strongroom_gateway_encrypted_requests_total',
      help: 'Requests with an encapsulated key (EHBP) whose body was read, by suite and outcome.',
      type: 'counter',
      samples: Object.entries(encryption).flatMap(([suite, outcomes]) =>
        Object.entries(outcomes).map(([outcome, value]) => ({ labels: { suite, outcome }, value })),
      ),
    },
    gauge('strongroom_usage_records_waiting', 'Usage records on their way into the ledger.', metering.waiting),
    ...(relays === null ? [] : relayFamilies(relays)),
    ...(gauges.sharedLimits == null ? [] : sharedFamilies(gauges.sharedLimits)),
  ]
}

function sharedFamilies({ keys, admitted, refused, goodMs }: SharedLimitsView): Family[] {
  return [
    gauge('strongroom_gateway_shared_keys', 'Keys whose limits this gateway shares with its fleet.', keys),
    {
      name: 'strongroom_gateway_shared_requests_total',
      help: 'Requests of such keys: admitted, or refused because the share of this gateway is used up while the key has room.',
      type: 'counter',
      samples: Object.entries({ admitted, refused }).map(([outcome, value]) => ({ labels: { outcome }, value })),
    },
    gauge(
      'strongroom_gateway_shares_good_seconds',
      'Seconds for which these shares stay valid without the fleet: at most 300; at 0 the gateway refuses.',
      Math.floor(goodMs / 1_000),
    ),
  ]
}

function relayFamilies({ running, restarts }: RelayGauges): Family[] {
  return [
    gauge('strongroom_gateway_relays', 'Processes that serve clients.', running),
    counter('strongroom_gateway_relay_restarts_total', 'Such processes that died and were restarted.', restarts),
  ]
}

function gauge(name: string, help: string, value: number): Family {
  return { name, help, type: 'gauge', samples: [{ labels: {}, value }] }
}

function counter(name: string, help: string, value: number): Family {
  return { name, help, type: 'counter', samples: [{ labels: {}, value }] }
}
