// The metrics-collector: outcomes of requests. Names, units and buckets follow OpenTelemetry's semantic conventions
// for generative AI (gen-ai-metrics) in Prometheus form: dots become underscores, and names end in seconds. Pure
// except for its state. Labels come from short lists and never hold a key, organization, address or prompt.

import { type Collector, type Family, type Labels, metricsText } from '../../base/prometheus.ts'
import { GATEWAY_ERROR_CODES } from '../../contract/http/gateway-error.ts'
import type { Observe, RequestObservation } from '../types.ts'
import { createCounter, createHistogram, seriesMax } from './histogram.ts'

export type MetricsDeps = {
  /** Names in the catalog; any other model is `other`. */
  readonly models: readonly string[]
  /** Configured names; any other upstream is `other`. */
  readonly upstreams: readonly string[]
  /** Families of router, limits and ledger, called for each scrape. Must not throw. */
  readonly otherFamilies: () => readonly Family[]
}

export type Metrics = Collector & { readonly observe: Observe }

const TOKEN_BOUNDS = Array.from({ length: 14 }, (_, power) => 4 ** power)
const DURATION_BOUNDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_TOKEN_BOUNDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const PER_TOKEN_BOUNDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
const STATUSES: ReadonlySet<number> = new Set([
  200, 400, 401, 402, 404, 405, 408, 409, 413, 422, 429, 499, 500, 502, 503,
])
const ERROR_CODES: ReadonlySet<string> = new Set(GATEWAY_ERROR_CODES)

export function createMetrics(deps: MetricsDeps): Metrics {
  const models = new Set(deps.models)
  const upstreams = new Set(deps.upstreams)
  const tokens = createHistogram(
    { name: 'gen_ai_client_token_usage', help: 'Tokens of a request, by type.' },
    TOKEN_BOUNDS,
  )
  const duration = createHistogram(
    { name: 'gen_ai_server_request_duration_seconds', help: 'From the request to the end of its response.' },
    DURATION_BOUNDS,
  )
  const firstToken = createHistogram(
    { name: 'gen_ai_server_time_to_first_token_seconds', help: 'From the request to the first chunk of its response.' },
    FIRST_TOKEN_BOUNDS,
  )
  const perToken = createHistogram(
    {
      name: 'gen_ai_server_time_per_output_token_seconds',
      help: 'Time per token after the first, of successful requests.',
    },
    PER_TOKEN_BOUNDS,
  )
  const queue = createHistogram(
    { name: 'strongroom_gateway_queue_duration_seconds', help: 'Wait for an upstream.' },
    FIRST_TOKEN_BOUNDS,
  )
  const requests = createCounter({
    name: 'strongroom_gateway_requests_total',
    help: 'Requests by upstream and status.',
  })

  const seriesOf = createSeriesOf(models, upstreams, ({ base, error, request }) => ({
    duration: duration.observer({ ...base, error_type: error }),
    input: tokens.observer({ ...base, gen_ai_token_type: 'input' }),
    output: tokens.observer({ ...base, gen_ai_token_type: 'output' }),
    firstToken: firstToken.observer(base),
    perToken: perToken.observer(base),
    queue: queue.observer(base),
    request: requests.adder(request),
  }))
  const observe = (seen: RequestObservation) => {
    const series = seriesOf(seen)
    series.duration(seen.durationMs / 1_000)
    // A refused request has no tokens, which is not the same as a request with zero.
    if (seen.tokens.prompt > 0) series.input(seen.tokens.prompt)
    if (seen.tokens.completion > 0) series.output(seen.tokens.completion)
    if (seen.firstChunkMs !== null) series.firstToken(seen.firstChunkMs / 1_000)
    const perTokenMs = msPerToken(seen)
    if (perTokenMs !== null) series.perToken(perTokenMs / 1_000)
    if (seen.upstream !== null) series.queue(seen.queueMs / 1_000)
    series.request(1)
  }
  const families = () => [duration, firstToken, perToken, tokens, queue, requests].map(metric => metric.family())
  return {
    workload: 'metrics-collector',
    observe,
    render: () => metricsText([...families(), ...deps.otherFamilies()]),
  }
}

/** Returns the error's type; empty for a success, because Prometheus treats an absent label and an empty one alike. */
function errorType({ errorCode, status }: RequestObservation): string {
  if (errorCode !== null) return ERROR_CODES.has(errorCode) ? errorCode : 'other'
  return status < 400 ? '' : 'other'
}

type LabelSets = { readonly base: Labels; readonly error: string; readonly request: Labels }

/** Caches the result of `make` for a request's labels. Most requests are alike, especially consecutive ones. */
function createSeriesOf<Series>(
  models: ReadonlySet<string>,
  upstreams: ReadonlySet<string>,
  make: (labels: LabelSets) => Series,
): (seen: RequestObservation) => Series {
  const known = new Map<string, Series>()
  let last: { readonly seen: RequestObservation; readonly series: Series } | null = null
  const find = (seen: RequestObservation): Series => {
    const model = models.has(seen.model) ? seen.model : 'other'
    const upstream = seen.upstream === null ? '' : upstreams.has(seen.upstream) ? seen.upstream : 'other'
    const status = STATUSES.has(seen.status) ? String(seen.status) : 'other'
    const error = errorType(seen)
    const key = `${seen.operation}\u0000${model}\u0000${upstream}\u0000${status}\u0000${error}`
    const found = known.get(key)
    if (found !== undefined) return found
    const base = {
      gen_ai_operation_name: seen.operation,
      gen_ai_provider_name: 'strongroom',
      gen_ai_request_model: model,
      upstream,
    }
    const series = make({ base, error, request: { ...base, http_response_status_code: status } })
    // Each label comes from a short list; combinations beyond the bound are dropped.
    if (known.size < seriesMax) known.set(key, series)
    return series
  }
  return seen => {
    if (last === null || !isAlike(last.seen, seen)) last = { seen, series: find(seen) }
    return last.series
  }
}

/** Reports whether the requests have the same labels. */
function isAlike(a: RequestObservation, b: RequestObservation): boolean {
  return (
    a.operation === b.operation &&
    a.model === b.model &&
    a.upstream === b.upstream &&
    a.status === b.status &&
    a.errorCode === b.errorCode
  )
}

function msPerToken({ errorCode, firstChunkMs, durationMs, tokens }: RequestObservation): number | null {
  if (errorCode !== null || firstChunkMs === null || tokens.completion < 2) return null
  return (durationMs - firstChunkMs) / (tokens.completion - 1)
}
