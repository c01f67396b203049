// Metrics: well-formed Prometheus text, right counts, and labels from short lists only.

import { describe, expect, test } from 'bun:test'
import { metricsText } from '../../../src/base/prometheus.ts'
import { createClusterMetrics } from '../../../src/inference/metrics/cluster.ts'
import { gatewayFamilies } from '../../../src/inference/metrics/gateway.ts'
import { createHistogram, seriesMax } from '../../../src/inference/metrics/histogram.ts'
import { createMetrics, type Metrics } from '../../../src/inference/metrics/requests.ts'
import type { RequestObservation } from '../../../src/inference/types.ts'
import { recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { insertVm, moveVm } from '../../../src/store/ledger/vm.query.ts'
import { openLedger } from '../../rigs/gateway/keys.ts'

function seen(changes: Partial<RequestObservation> = {}): RequestObservation {
  return {
    operation: 'chat',
    model: 'tiny',
    upstream: 'local',
    status: 200,
    errorCode: null,
    tokens: { prompt: 10, completion: 5 },
    durationMs: 500,
    firstChunkMs: 100,
    queueMs: 2,
    ...changes,
  }
}

function collector(): Metrics {
  return createMetrics({ models: ['tiny', 'large'], upstreams: ['local'], otherFamilies: () => [] })
}

type Read = { readonly types: Map<string, string>; readonly samples: Map<string, number> }

/**
 * Reads the text format strictly: known lines only, samples under their family, no series twice, buckets that only
 * grow.
 */
function read(text: string): Read {
  const types = new Map<string, string>()
  const samples = new Map<string, number>()
  let family = ''
  expect(text.endsWith('\n')).toBe(true)
  for (const line of text.slice(0, -1).split('\n')) {
    const help = /^# HELP ([a-z_]+) \S.*$/.exec(line)
    const type = /^# TYPE ([a-z_]+) (counter|gauge|histogram)$/.exec(line)
    const sample = /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)$/.exec(line)
    if (help !== null) family = help[1] ?? ''
    else if (type !== null) {
      expect([line, type[1], types.has(family)]).toEqual([line, family, false])
      types.set(family, type[2] ?? '')
    } else {
      expect([line, sample !== null]).toEqual([line, true])
      const name = sample?.[1] ?? ''
      const own = types.get(family) === 'histogram' ? ['_bucket', '_sum', '_count'].map(end => family + end) : [family]
      expect(own).toContain(name)
      const key = name + (sample?.[2] ?? '')
      expect([key, samples.has(key), Number.isFinite(Number(sample?.[3]))]).toEqual([key, false, true])
      samples.set(key, Number(sample?.[3]))
    }
  }
  return { types, samples }
}

const base =
  'gen_ai_operation_name="chat",gen_ai_provider_name="strongroom",gen_ai_request_model="tiny",upstream="local"'

describe('requests', () => {
  test('names, units and counts', () => {
    // Goal: what is observed is what is shown, under the conventions' names, in seconds and tokens.
    const metrics = collector()
    metrics.observe(seen())
    metrics.observe(seen({ durationMs: 1_500, firstChunkMs: 900, tokens: { prompt: 70, completion: 1 } }))
    const { types, samples } = read(metrics.render())
    expect(Object.fromEntries(types)).toEqual({
      gen_ai_server_request_duration_seconds: 'histogram',
      gen_ai_server_time_to_first_token_seconds: 'histogram',
      gen_ai_server_time_per_output_token_seconds: 'histogram',
      gen_ai_client_token_usage: 'histogram',
      strongroom_gateway_queue_duration_seconds: 'histogram',
      strongroom_gateway_requests_total: 'counter',
    })
    const value = (name: string) => samples.get(name)
    const duration = 'gen_ai_server_request_duration_seconds'
    expect(value(`${duration}_count{${base},error_type=""}`)).toBe(2)
    expect(value(`${duration}_sum{${base},error_type=""}`)).toBe(2)
    expect(value(`${duration}_bucket{${base},error_type="",le="0.32"}`)).toBe(0)
    expect(value(`${duration}_bucket{${base},error_type="",le="0.64"}`)).toBe(1)
    expect(value(`${duration}_bucket{${base},error_type="",le="2.56"}`)).toBe(2)
    expect(value(`${duration}_bucket{${base},error_type="",le="+Inf"}`)).toBe(2)
    expect(value(`gen_ai_client_token_usage_sum{${base},gen_ai_token_type="input"}`)).toBe(80)
    expect(value(`gen_ai_client_token_usage_bucket{${base},gen_ai_token_type="input",le="16"}`)).toBe(1)
    expect(value(`gen_ai_client_token_usage_sum{${base},gen_ai_token_type="output"}`)).toBe(6)
    expect(value(`gen_ai_server_time_to_first_token_seconds_sum{${base}}`)).toBe(1)
    // A single token has no time between tokens.
    expect(value(`gen_ai_server_time_per_output_token_seconds_count{${base}}`)).toBe(1)
    expect(value(`gen_ai_server_time_per_output_token_seconds_sum{${base}}`)).toBe(0.1)
    expect(value(`strongroom_gateway_queue_duration_seconds_count{${base}}`)).toBe(2)
    const requests = 'strongroom_gateway_requests_total'
    expect(value(`${requests}{${base},http_response_status_code="200"}`)).toBe(2)
  })

  test('latency by upstream and model', () => {
    // Goal: of two upstreams of one model, and of two models, the slow one is seen.
    const metrics = createMetrics({ models: ['tiny'], upstreams: ['fast', 'slow'], otherFamilies: () => [] })
    metrics.observe(seen({ upstream: 'fast', durationMs: 200, firstChunkMs: 20 }))
    metrics.observe(seen({ upstream: 'slow', durationMs: 3_000, firstChunkMs: 900 }))
    const { samples } = read(metrics.render())
    const of = (upstream: string) => base.replace('"local"', `"${upstream}"`)
    const sums = ['fast', 'slow'].map(upstream => [
      samples.get(`gen_ai_server_request_duration_seconds_sum{${of(upstream)},error_type=""}`),
      samples.get(`gen_ai_server_time_to_first_token_seconds_sum{${of(upstream)}}`),
    ])
    expect(sums).toEqual([
      [0.2, 0.02],
      [3, 0.9],
    ])
  })

  test('a value on a bound belongs to its bucket', () => {
    // Goal: `le` is less than or equal, and what is above every bound is in +Inf alone.
    const histogram = createHistogram({ name: 'x', help: 'X.' }, [1, 2])
    for (const value of [1, 2, 3, Number.NaN, -1]) histogram.observe({}, value)
    expect(metricsText([histogram.family()])).toBe(
      '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1"} 1\nx_bucket{le="2"} 2\nx_bucket{le="+Inf"} 3\nx_sum 6\nx_count 3\n',
    )
  })

  test('refusals and failures', () => {
    // Goal: errors are labelled with the contract's codes; a request without tokens, chunk or upstream adds nothing to
    // their histograms.
    const metrics = collector()
    const none = { upstream: null, tokens: { prompt: 0, completion: 0 }, firstChunkMs: null }
    metrics.observe(seen({ ...none, status: 429, errorCode: 'rate_limited' }))
    metrics.observe(seen({ ...none, status: 502, errorCode: 'upstream_failed', upstream: 'local' }))
    metrics.observe(seen({ ...none, status: 500, errorCode: 'secret detail' }))
    const { samples } = read(metrics.render())
    const without = base.replace('"local"', '""')
    for (const [code, labels] of [
      ['rate_limited', without],
      ['upstream_failed', base],
      ['other', without],
    ]) {
      expect(samples.get(`gen_ai_server_request_duration_seconds_count{${labels},error_type="${code}"}`)).toBe(1)
    }
    const requests = 'strongroom_gateway_requests_total'
    expect(samples.get(`${requests}{${without},http_response_status_code="429"}`)).toBe(1)
    expect(samples.get(`strongroom_gateway_queue_duration_seconds_count{${base}}`)).toBe(1)
    expect([...samples.keys()].filter(key => /token/.test(key))).toEqual([])
  })

  test('labels are bounded, whatever clients send', () => {
    // Goal: unknown models, upstreams, statuses and codes are `other`; series stop growing; nothing of theirs is shown.
    const metrics = collector()
    for (let i = 0; i < 5_000; i += 1) {
      metrics.observe(seen({ model: `evil-${i}"\n`, upstream: `evil-${i}`, status: 1_000 + i, errorCode: `evil-${i}` }))
    }
    const { samples } = read(metrics.render())
    expect(metrics.render()).not.toContain('evil')
    expect(samples.size).toBeLessThan(100)
    const histogram = createHistogram({ name: 'x', help: 'X.' }, [1])
    for (let i = 0; i < seriesMax + 500; i += 1) histogram.observe({ a: String(i) }, 1)
    expect(histogram.family().samples).toHaveLength(seriesMax * 4)
  })

  test('a model whose name needs escapes', () => {
    // Goal: the text stays readable for any configured name.
    const metrics = createMetrics({ models: ['a"b\\c\nd'], upstreams: [], otherFamilies: () => [] })
    metrics.observe(seen({ model: 'a"b\\c\nd' }))
    const { samples } = read(metrics.render())
    expect([...samples.keys()][0]).toContain('gen_ai_request_model="a\\"b\\\\c\\nd"')
  })
})

test('limits, router and ledger', () => {
  // Goal: what the others count is shown as it is at the moment.
  const metrics = createMetrics({
    models: [],
    upstreams: [],
    otherFamilies: () =>
      gatewayFamilies({
        attested: [],
        metering: { written: 7, lost: 1, waiting: 2 },
        running: 3,
        encryption: {
          x25519: { decrypted: 5, key_config_mismatch: 1, malformed: 2, replayed: 4 },
          xwing: { decrypted: 6, key_config_mismatch: 0, malformed: 0, replayed: 0 },
        },
        waiting: 4,
        targets: [
          { name: 'local', active: 3, ejected: false },
          { name: 'far', active: 0, ejected: true },
        ],
        relays: { running: 3, restarts: 9 },
        sharedLimits: { keys: 2, admitted: 50, refused: 6, goodMs: 298_900 },
      }),
  })
  expect(Object.fromEntries(read(metrics.render()).samples)).toEqual({
    strongroom_gateway_requests_running: 3,
    strongroom_gateway_requests_queued: 4,
    'strongroom_upstream_requests_running{upstream="local"}': 3,
    'strongroom_upstream_requests_running{upstream="far"}': 0,
    'strongroom_upstream_healthy{upstream="local"}': 1,
    'strongroom_upstream_healthy{upstream="far"}': 0,
    'strongroom_gateway_encrypted_requests_total{suite="x25519",outcome="decrypted"}': 5,
    'strongroom_gateway_encrypted_requests_total{suite="x25519",outcome="key_config_mismatch"}': 1,
    'strongroom_gateway_encrypted_requests_total{suite="x25519",outcome="malformed"}': 2,
    'strongroom_gateway_encrypted_requests_total{suite="x25519",outcome="replayed"}': 4,
    'strongroom_gateway_encrypted_requests_total{suite="xwing",outcome="decrypted"}': 6,
    'strongroom_gateway_encrypted_requests_total{suite="xwing",outcome="key_config_mismatch"}': 0,
    'strongroom_gateway_encrypted_requests_total{suite="xwing",outcome="malformed"}': 0,
    'strongroom_gateway_encrypted_requests_total{suite="xwing",outcome="replayed"}': 0,
    strongroom_usage_records_total: 7,
    strongroom_usage_records_lost_total: 1,
    strongroom_usage_records_waiting: 2,
    strongroom_gateway_relays: 3,
    strongroom_gateway_relay_restarts_total: 9,
    strongroom_gateway_shared_keys: 2,
    'strongroom_gateway_shared_requests_total{outcome="admitted"}': 50,
    'strongroom_gateway_shared_requests_total{outcome="refused"}': 6,
    strongroom_gateway_shares_good_seconds: 298,
  })
})

test('the state of the host', () => {
  // Goal: VMs, instances, room and egress are read from the store at each scrape, every state named, gone VMs not
  // counted.
  using ledger = openLedger()
  const { store } = ledger
  const cluster = createClusterMetrics({
    store,
    capacity: { memoryMib: 4_096, vcpus: 8, addresses: 100 },
  })
  const vm = (id: string, used: number, blocked: boolean) => {
    insertVm(store.ledger.db, { id, hostId: store.hostId, image: 'instance', vcpus: 2, memoryMib: 512, nowMs: 1 })
    moveVm(store.ledger.db, { id, from: 'waiting', to: 'running', nowMs: 2 })
    recordEgress(store.ledger.db, [
      {
        vmId: id,
        usedBytes: used,
        rescueBytes: 0,
        observedAtMs: 3,
        blockedAtMs: blocked ? 3 : null,
      },
    ])
  }
  vm('a', 100, false)
  vm('b', 900, true)
  vm('c', 5_000, true)
  moveVm(store.ledger.db, { id: 'c', from: 'running', to: 'gone', nowMs: 3 })
  ledger.addInstance('abcd1234')
  expect(Object.fromEntries(read(cluster.render()).samples)).toEqual({
    'strongroom_vms{state="waiting"}': 0,
    'strongroom_vms{state="launching"}': 0,
    'strongroom_vms{state="booting"}': 0,
    'strongroom_vms{state="running"}': 2,
    'strongroom_vms{state="stopping"}': 0,
    'strongroom_vms{state="failed"}': 0,
    'strongroom_vms{state="gone"}': 1,
    'strongroom_instances{status="provisioning"}': 1,
    'strongroom_instances{status="ready"}': 0,
    'strongroom_instances{status="failed"}': 0,
    'strongroom_instances{status="terminating"}': 0,
    'strongroom_instances{status="terminated"}': 0,
    strongroom_vm_memory_bytes: 1_073_741_824,
    strongroom_vm_memory_limit_bytes: 4_294_967_296,
    strongroom_vm_vcpus: 4,
    strongroom_vm_vcpus_limit: 8,
    strongroom_pool_addresses: 2,
    strongroom_pool_addresses_limit: 100,
    strongroom_egress_bytes: 1_000,
    strongroom_egress_vm_max_bytes: 900,
    strongroom_egress_blocked_vms: 1,
  })
})
