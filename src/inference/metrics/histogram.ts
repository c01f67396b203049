// Counters and histograms by label values, in memory, with a bounded number of series. Pure except for their state.

import { assert } from '../../base/assert.ts'
import type { Family, Labels, Sample } from '../../base/prometheus.ts'

/**
 * Per family. Labels come from short lists; the bound protects memory from an unexpectedly long
 * list.
 * No share: labels are names that the operator chose.
 */
export const seriesMax = 2_000

export type Histogram = {
  readonly observe: (labels: Labels, value: number) => void
  /** Returns a function for repeated `observe` calls with the same labels, which looks up their series once. */
  readonly observer: (labels: Labels) => (value: number) => void
  readonly family: () => Family
}

export type Counter = {
  readonly adder: (labels: Labels) => (value: number) => void
  readonly family: () => Family
}

type Named = { readonly name: string; readonly help: string }
type Counted = { readonly labels: Labels; readonly counts: Float64Array; sum: number; count: number }

/** Creates a histogram. `bounds` are ascending and do not include +Inf. */
export function createHistogram(named: Named, bounds: readonly number[]): Histogram {
  assert(
    bounds.every((bound, i) => bound > (bounds[i - 1] ?? Number.NEGATIVE_INFINITY)),
    'bounds ascend',
  )
  const series = createSeries((labels): Counted => {
    return { labels, counts: new Float64Array(bounds.length), sum: 0, count: 0 }
  })
  const observer = (labels: Labels) => {
    // Created with the first value, because a series without one is not shown.
    let counted: Counted | null = null
    return (value: number) => {
      if (!Number.isFinite(value) || value < 0) return
      counted ??= series.of(labels)
      if (counted === null) return
      counted.sum += value
      counted.count += 1
      let at = 0
      while (at < bounds.length && value > (bounds[at] ?? 0)) at += 1
      if (at < bounds.length) counted.counts[at] = (counted.counts[at] ?? 0) + 1
    }
  }
  return {
    observe: (labels, value) => observer(labels)(value),
    observer,
    family: () => ({
      ...named,
      type: 'histogram',
      samples: series.all().flatMap(item => histogramSamples(item, bounds)),
    }),
  }
}

export function createCounter(named: Named): Counter {
  const series = createSeries(labels => ({ labels, value: 0 }))
  return {
    adder: labels => {
      let item: { value: number } | null = null
      return value => {
        item ??= series.of(labels)
        if (item !== null && Number.isFinite(value) && value > 0) item.value += value
      }
    },
    family: () => ({
      ...named,
      type: 'counter',
      samples: series.all().map(({ labels, value }) => ({ labels, value })),
    }),
  }
}

function createSeries<T>(make: (labels: Labels) => T) {
  const series = new Map<string, T>()
  return {
    /** Returns the series of the labels; null if there are too many series. */
    of: (labels: Labels): T | null => {
      const key = Object.values(labels).join('\u0000')
      const known = series.get(key)
      if (known !== undefined) return known
      if (series.size >= seriesMax) return null
      const made = make(labels)
      series.set(key, made)
      return made
    },
    all: (): T[] => [...series.values()],
  }
}

/** Returns the samples. Buckets are cumulative in Prometheus' format. */
function histogramSamples({ labels, counts, sum, count }: Counted, bounds: readonly number[]): Sample[] {
  let below = 0
  const buckets = bounds.map((bound, i) => {
    below += counts[i] ?? 0
    return { suffix: '_bucket', labels: { ...labels, le: String(bound) }, value: below }
  })
  return [
    ...buckets,
    { suffix: '_bucket', labels: { ...labels, le: '+Inf' }, value: count },
    { suffix: '_sum', labels, value: sum },
    { suffix: '_count', labels, value: count },
  ]
}
