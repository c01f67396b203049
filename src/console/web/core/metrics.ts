// Reads the Prometheus text format of /metrics: samples by name, sums and quantiles of histograms. Pure.

export type Sample = { readonly labels: Readonly<Record<string, string>>; readonly value: number }
export type Metrics = ReadonlyMap<string, readonly Sample[]>

const linesMax = 50_000
const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g

export function readMetrics(text: string): Metrics {
  const found = new Map<string, Sample[]>()
  for (const row of text.split('\n', linesMax)) {
    if (row.startsWith('#')) continue
    const [, name, labels = '', value] = line.exec(row) ?? []
    if (name === undefined || value === undefined) continue
    const samples = found.get(name) ?? []
    if (samples.length === 0) found.set(name, samples)
    samples.push({ labels: labelsOf(labels), value: value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value) })
  }
  return found
}

function labelsOf(text: string): Record<string, string> {
  const entries = [...text.matchAll(label)].map(([, name = '', value = '']) => [name, unescaped(value)] as const)
  return Object.fromEntries(entries)
}

function unescaped(text: string): string {
  return text.replace(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char))
}

/** Returns the sum of samples with these labels; 0 if there are none. */
export function sumOf(metrics: Metrics, name: string, wanted: Readonly<Record<string, string>> = {}): number {
  const samples = metrics.get(name) ?? []
  const fits = ({ labels }: Sample) => Object.entries(wanted).every(([key, value]) => labels[key] === value)
  return samples.filter(fits).reduce((sum, { value }) => sum + value, 0)
}

/** Returns sums by the value of one label, largest first. */
export function sumsBy(metrics: Metrics, name: string, key: string): (readonly [value: string, sum: number])[] {
  const sums = new Map<string, number>()
  for (const { labels, value } of metrics.get(name) ?? []) {
    const of = labels[key] ?? ''
    sums.set(of, (sums.get(of) ?? 0) + value)
  }
  return [...sums].sort((a, b) => b[1] - a[1])
}

/** Returns the `q`-quantile of a histogram's observations; null if there are none. */
export function quantileOf(metrics: Metrics, name: string, q: number, before: Metrics | null = null): number | null {
  const buckets = bucketsOf(metrics, name)
  const earlier = before === null ? new Map<number, number>() : bucketsOf(before, name)
  const counts = [...buckets]
    .map(([limit, count]) => [limit, count - (earlier.get(limit) ?? 0)] as const)
    .sort((a, b) => a[0] - b[0])
  const total = counts.at(-1)?.[1] ?? 0
  if (total <= 0) return null
  const wanted = total * q
  let below = { limit: 0, count: 0 }
  for (const [limit, count] of counts) {
    if (count >= wanted) {
      if (limit === Number.POSITIVE_INFINITY) return below.limit
      const share = count === below.count ? 1 : (wanted - below.count) / (count - below.count)
      return below.limit + (limit - below.limit) * share
    }
    below = { limit, count }
  }
  return below.limit
}

/** Returns cumulative counts by upper limit, over all labels. */
function bucketsOf(metrics: Metrics, name: string): Map<number, number> {
  const found = new Map<number, number>()
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    const limit = labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le)
    found.set(limit, (found.get(limit) ?? 0) + value)
  }
  return found
}
