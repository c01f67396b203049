// The tenant's instances: the list, a form for a new one, and the usage of the billing period.

import { useSignal } from '@preact/signals'
import type { InstanceList, InstanceRecord, UsageSummary } from '../../../../contract/http/instance.ts'
import { bytesText, countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { Card, Empty, Facts, Page, Shown } from '../../parts/page.tsx'
import { type Column, LongTable } from '../../parts/table.tsx'
import { Foreign, Instant, Link, StateMark, Time } from '../../parts/text.tsx'
import { askInstances } from '../services.ts'
import { NewInstance } from './new-instance.tsx'

/** Poll interval: the API has no events for changes of state. */
const everyMs = 5_000

export function InstancesPage() {
  const list = useLoaded('/v1/instances', options => askInstances<InstanceList>('/v1/instances', options), { everyMs })
  const isCreating = useSignal(false)
  return (
    <Page
      title="Instances"
      actions={
        <button type="button" class="primary" onClick={() => (isCreating.value = true)}>
          New instance
        </button>
      }
    >
      <Shown of={list} what="your instances">
        {({ instances }) =>
          instances.length === 0 ? (
            <Empty title="No instances yet">
              <p>An instance is a VM that runs an agent. The host cannot read its memory.</p>
            </Empty>
          ) : (
            <LongTable label="Instances" columns={COLUMNS} rows={instances.toReversed()} keyOf={({ name }) => name} />
          )
        }
      </Shown>
      <UsageCard />
      {isCreating.value && <NewInstance close={() => (isCreating.value = false)} />}
    </Page>
  )
}

const COLUMNS: readonly Column<InstanceRecord>[] = [
  { name: 'Name', cell: ({ name }) => <Link href={pathTo`/tenant/instances/${name}`}>{name}</Link> },
  { name: 'Status', cell: ({ status }) => <StateMark word={status} /> },
  { name: 'Host name', share: 2, cell: row => <Foreign text={row.hostname} /> },
  { name: 'Model', cell: row => <Foreign text={row.inference_model} /> },
  { name: 'Created', cell: row => <Time at={row.created_at} /> },
]

function UsageCard() {
  const found = useLoaded('/v1/usage', options => askInstances<UsageSummary>('/v1/usage', options), { everyMs: 60_000 })
  return (
    <Card title="Billing period" wide>
      <Shown of={found} what="usage">
        {({ pricing, usage }) => (
          <Facts
            rows={[
              ['Ends', <Instant at={pricing.period_end} />],
              [
                'Instance-hours',
                `${usage.instance_hours_used.toFixed(1)} of ${countText(pricing.instance_hours_included)} included`,
              ],
              ['Each additional hour', usdText(pricing.overage_per_hour_usd)],
              ['Models', usdText(usage.inference_cost_usd)],
              [
                'Egress of current instances',
                `${bytesText(usage.egress_bytes)}; ${bytesText(usage.egress_limit_bytes)} per instance`,
              ],
              ['Egress blocked', usage.egress_blocked ? <StateMark word="yes" tone="bad" /> : 'no'],
            ]}
          />
        )}
      </Shown>
    </Card>
  )
}
