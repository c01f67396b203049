// Fetches the appliance's metrics at an interval while a page shows them, and keeps the points for charts. Effects:
// requests, a timer.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { type Metrics, readMetrics } from '../../core/metrics.ts'
import { isAbort, type LoadRequest, requestText } from '../../core/request.ts'
import { operatorPath } from '../../core/session.ts'
import { type Point, pointOf } from './rates.ts'

const intervalMs = 5_000
/** Points of one hour. */
const pointsMax = 720

type History = { readonly latest: Metrics | null; readonly points: readonly Point[] }

const history = signal<History>({ latest: null, points: [] })
let watchers = 0
let timer: ReturnType<typeof setInterval> | undefined
let lastAtMs = 0

/** Fetches metrics while a component uses them. The points stay while the page is open. */
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
    // The next fetch follows anyway, and the live stream reports an appliance that does not respond.
    if (!isAbort(error)) history.value = { ...history.peek() }
  }
}
