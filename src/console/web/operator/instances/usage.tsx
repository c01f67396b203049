// Charts of an instance's CPU, memory and egress over the last hour.

import type { AdminInstanceUsage } from '../../../../contract/admin/views/instance-usage.ts'
import { bytesText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { operate } from '../../core/session.ts'
import { Chart } from '../../parts/chart.tsx'
import { Card, Empty, Shown } from '../../parts/page.tsx'
import { egressRates } from './usage-rates.ts'

/** Interval of the host's samples. */
const everyMs = 30_000

export function UsageCard({ reference }: { reference: string }) {
  const path = `/instance/usage?ref=${encodeURIComponent(reference)}`
  const found = useLoaded(path, options => operate<AdminInstanceUsage>(path, options), { everyMs })
  return (
    <Card title="Usage in the last hour" wide>
      <Shown of={found} what="usage">
        {usage => (usage.points.length < 2 ? <NoSamples usage={usage} /> : <Charts usage={usage} />)}
      </Shown>
    </Card>
  )
}

function NoSamples({ usage: { vcpus } }: { usage: AdminInstanceUsage }) {
  return (
    <Empty title="No samples yet">
      <p>
        {vcpus === null
          ? 'The instance has no VM on this host.'
          : 'The host takes a sample every 30 seconds. Samples start again when the daemon restarts.'}
      </p>
    </Empty>
  )
}

function Charts({ usage }: { usage: AdminInstanceUsage }) {
  const { points, vcpus, memory_bytes: memoryBytes } = usage
  const times = points.map(({ at }) => Date.parse(at) / 1000)
  const rates = egressRates(points)
  const last = points.at(-1)
  const of = (total: string | null) => (total === null ? '' : ` of ${total}`)
  const text = (value: number | null | undefined, format: (value: number) => string) =>
    value == null ? 'unknown' : format(value)
  return (
    <div class="charts">
      <Chart
        title="CPU"
        times={times}
        series={[{ name: 'CPUs in use', values: points.map(({ cpus }) => cpus) }]}
        format={cpusText}
        summary={`${text(last?.cpus, cpusText)}${of(vcpus === null ? null : vcpus === 1 ? '1 vCPU' : `${vcpus} vCPUs`)}`}
      />
      <Chart
        title="Memory on the host"
        times={times}
        series={[{ name: 'memory', values: points.map(row => row.memory_bytes) }]}
        format={bytesText}
        summary={`${text(last?.memory_bytes, bytesText)}${of(memoryBytes === null ? null : bytesText(memoryBytes))}`}
      />
      <Chart
        title="Egress"
        times={times}
        series={[{ name: 'egress', values: rates }]}
        format={rateText}
        summary={text(rates.at(-1), rateText)}
      />
    </div>
  )
}

function cpusText(cpus: number): string {
  return cpus.toFixed(cpus < 10 ? 2 : 0)
}

function rateText(bytesPerS: number): string {
  return `${bytesText(Math.round(bytesPerS))}/s`
}
