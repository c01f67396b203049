// The appliance's metrics, fetched at an interval while a page shows them, and what a chart needs of them. Effects:
// requests, a timer.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { type Metrics, quantileOf, readMetrics, sumOf } from '../../core/metrics.ts'
import { isAbort, type LoadRequest, requestText } from '../../core/request.ts'
import { operatorPath } from '../../core/session.ts'

const intervalMs = 5_000
/** An hour. */
const pointsMax = 720

/** Rates since the point before, per second; null where nothing can be said. */
export type Point = {
  readonly atS: number
  readonly requests: number | null
  readonly failures: number | null
  readonly promptTokens: number | null
  readonly completionTokens: number | null
  readonly firstChunkHalfS: number | null
  readonly firstChunkMostS: number | null
}

type History = { readonly latest: Metrics | null; readonly points: readonly Point[] }

const history = signal<History>({ latest: null, points: [] })
let watchers = 0
let timer: ReturnType<typeof setInterval> | undefined
let lastAtMs = 0

/** Fetched for as long as any part of the page uses it; the points stay while the page is open. */
export function useMetrics(): History {
  useEffect(() => {
    const controller = new AbortController()
    watchers += 1
    if (watchers === 1) {
      void fetchPoint({ signal: controller.signal })
      timer = setInterval(() => void fetchPoint({ isBackground: true }), intervalMs)
    }
    return () => {
      controller.abort()
      watchers -= 1
      if (watchers === 0) clearInterval(timer)
    }
  }, [])
  return history.value
}

async function fetchPoint(options: LoadRequest): Promise<void> {
  if (document.hidden) return
  try {
    const metrics = readMetrics(await requestText(operatorPath('/metrics'), options))
    const nowMs = Date.now()
    const { latest, points } = history.peek()
    const point = pointOf(metrics, { before: latest, seconds: (nowMs - lastAtMs) / 1000, atS: nowMs / 1000 })
    history.value = { latest: metrics, points: [...points, point].slice(-pointsMax) }
    lastAtMs = nowMs
  } catch (error) {
    // The next one comes by itself; that the appliance does not answer is said by the live stream.
    if (!isAbort(error)) history.value = { ...history.peek() }
  }
}

const firstChunk = 'gen_ai_server_time_to_first_token_seconds'

/** Pure. A count that went down began anew, so nothing is said of that step. */
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
