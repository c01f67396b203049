// Usage of the gateway by an organization, by model, day or key.

import { useSignal } from '@preact/signals'
import { dayMs } from '../../../../base/time.ts'
import type { AdminUsage } from '../../../../contract/admin/usage.ts'
import { commandOf } from '../../core/command.ts'
import { useLoaded } from '../../core/loaded.ts'
import { nowMs } from '../../core/now.ts'
import { pathTo } from '../../core/path.ts'
import { operate } from '../../core/session.ts'
import { Choice } from '../../parts/field.tsx'
import { Card, Shown } from '../../parts/page.tsx'
import { CommandLine } from '../../parts/text.tsx'
import { UsageTable } from '../../parts/usage-table.tsx'

const daysShown = 30

const GROUPS = [
  ['model', 'Model'],
  ['day', 'Day'],
  ['key', 'Key'],
  ['day,model', 'Day and model'],
] as const

type Group = (typeof GROUPS)[number][0]

export function UsageCard({ slug }: { slug: string }) {
  const by = useSignal<Group>('model')
  const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10)
  const days = { from: dayOf(nowMs.value - (daysShown - 1) * dayMs), to: dayOf(nowMs.value) }
  const path = `${pathTo`/organizations/${slug}/usage`}?${new URLSearchParams({ ...days, by: by.value })}`
  const usage = useLoaded(path, options => operate<AdminUsage>(path, options))
  return (
    <Card
      title={`Usage in the last ${daysShown} days`}
      wide
      actions={
        <Choice label="Group by" isCompact value={by.value} change={value => (by.value = value)} options={GROUPS} />
      }
    >
      <CommandLine command={commandOf(['gateway', 'usage', slug], { ...days, by: by.value })} />
      <Shown of={usage} what="usage">
        {data => <UsageTable usage={data} />}
      </Shown>
    </Card>
  )
}
