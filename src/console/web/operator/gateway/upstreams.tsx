// Upstreams of the gateway: health and requests from the metrics, evidence from the status.

import { countText, durationText } from '../../core/format.ts'
import { sumOf, sumsBy } from '../../core/metrics.ts'
import { Card, Empty } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign, StateMark, Time } from '../../parts/text.tsx'
import { useStatus } from '../host/overview.tsx'
import { useMetrics } from './metrics-history.ts'

type Upstream = {
  readonly name: string
  readonly isHealthy: boolean
  readonly running: number
  readonly requests: number
  /** Null if the upstream need not present evidence. */
  readonly evidence: {
    readonly attested: boolean
    readonly lastGoodAt: string | null
    readonly ageS: number | null
  } | null
}

const COLUMNS: readonly Column<Upstream>[] = [
  { name: 'Upstream', cell: ({ name }) => <Foreign text={name} /> },
  {
    name: 'Health',
    cell: row => <StateMark word={row.isHealthy ? 'healthy' : 'failing'} tone={row.isHealthy ? 'good' : 'bad'} />,
  },
  { name: 'Running', isNumber: true, cell: row => countText(row.running) },
  { name: 'Requests', isNumber: true, cell: row => countText(row.requests) },
  {
    name: 'Evidence',
    cell: ({ evidence }) =>
      evidence === null ? (
        <span class="muted">not required</span>
      ) : (
        <StateMark word={evidence.attested ? 'attested' : 'not attested'} tone={evidence.attested ? 'good' : 'bad'} />
      ),
  },
  {
    name: 'Last valid evidence',
    cell: ({ evidence }) =>
      evidence?.ageS == null ? <Time at={evidence?.lastGoodAt ?? null} /> : `${durationText(evidence.ageS)} ago`,
  },
]

export function Upstreams() {
  const { latest } = useMetrics()
  const { data: status } = useStatus()
  if (latest === null) return null
  const attested = status?.gateway.attested_upstreams ?? []
  const rows = sumsBy(latest, 'strongroom_upstream_healthy', 'upstream').map(([name, healthy]) => {
    const found = attested.find(row => row.name === name)
    return {
      name,
      isHealthy: healthy > 0,
      running: sumOf(latest, 'strongroom_upstream_requests_running', { upstream: name }),
      requests: sumOf(latest, 'strongroom_gateway_requests_total', { upstream: name }),
      evidence:
        found === undefined ? null : { attested: found.attested, lastGoodAt: found.last_good_at, ageS: found.age_s },
    }
  })
  return (
    <Card title="Upstreams" wide>
      {rows.length === 0 ? (
        <Empty title="No upstreams configured" />
      ) : (
        <Table label="Upstreams" columns={COLUMNS} rows={rows} keyOf={({ name }) => name} />
      )}
    </Card>
  )
}
