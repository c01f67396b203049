// The appliance's metrics, fetched at an interval while a page shows them, and what a chart needs of them. Effects:
// requests, a timer.

import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { type Metrics, readMetrics } from '../../core/metrics.ts'
import { isAbort, type LoadRequest, requestText } from '../../core/request.ts'
import { operatorPath } from '../../core/session.ts'
import { type Point, pointOf } from './rates.ts'

const intervalMs = 5_000
/** An hour. */
const pointsMax = 720

type History = { readonly latest: Metrics | null; readonly points: readonly Point[] }

const history = signal<History>({ latest: null, points: [] })
let watchers = 0
let timer: ReturnType<typeof setInterval> | undefined
let lastAtMs = 0

/** Fetched while a part of the page uses it; the points stay while the page is open. */
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
