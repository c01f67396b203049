// Rates of the gateway between two fetches of its metrics. Pure.

import { type Metrics, quantileOf, sumOf } from '../../core/metrics.ts'

/** Rates since the previous point, per second; null if unknown. */
export type Point = {
  readonly atS: number
  readonly requests: number | null
  readonly failures: number | null
  readonly promptTokens: number | null
  readonly completionTokens: number | null
  readonly firstChunkHalfS: number | null
  readonly firstChunkMostS: number | null
}

const firstChunk = 'gen_ai_server_time_to_first_token_seconds'

/** Computes a point. If a count went down, it was reset, and this step has no rate. */
export function pointOf(
  metrics: Metrics,
  { before, seconds, atS }: { readonly before: Metrics | null; readonly seconds: number; readonly atS: number },
): Point {
  const rate = (count: (of: Metrics) => number) => {
    if (before === null || seconds <= 0) return null
    const grown = count(metrics) - count(before)
    return grown < 0 ? null : grown / seconds
  }
  const requests = (of: Metrics) => sumOf(of, 'strongroom_gateway_requests_total')
  const fine = (of: Metrics) => sumOf(of, 'strongroom_gateway_requests_total', { http_response_status_code: '200' })
  const tokens = (type: string) => (of: Metrics) =>
    sumOf(of, 'gen_ai_client_token_usage_sum', { gen_ai_token_type: type })
  return {
    atS,
    requests: rate(requests),
    failures: rate(of => requests(of) - fine(of)),
    promptTokens: rate(tokens('input')),
    completionTokens: rate(tokens('output')),
    firstChunkHalfS: before === null ? null : quantileOf(metrics, firstChunk, 0.5, before),
    firstChunkMostS: before === null ? null : quantileOf(metrics, firstChunk, 0.95, before),
  }
}
