// Quotas of an organization: a card with the limits that differ from the configured ones, and their dialog.

import { useSignal } from '@preact/signals'
import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import type { QuotaName } from '../../../../contract/admin/organizations/quotas.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { Card, Facts } from '../../parts/page.tsx'

/** Wire name, label, command line option and the words for no quota. */
const QUOTAS = [
  ['instances', 'Instances', 'instances', 'as configured'],
  ['creates_per_day', 'Instances created a day', 'creates-per-day', 'as configured'],
  ['builds', 'Unfinished builds', 'builds', 'as configured'],
  ['builds_per_day', 'Builds a day', 'builds-per-day', 'as configured'],
  ['memory_mib', 'Memory in MiB', 'memory-mib', 'no limit'],
] as const satisfies readonly (readonly [QuotaName, string, string, string])[]

export function QuotasCard({ organization, change }: { organization: AdminOrganization; change: () => void }) {
  const isLiving = organization.status === 'active' || organization.status === 'suspended'
  return (
    <Card
      title="Quotas"
      actions={
        isLiving &&
        may('POST /organizations/:slug/quotas') && (
          <button type="button" onClick={change}>
            Change quotas
          </button>
        )
      }
    >
      <Facts
        rows={QUOTAS.map(([name, label, , none]) => {
          const most = organization.quotas[name]
          return [label, most === null ? none : countText(most)]
        })}
      />
    </Card>
  )
}

type DialogProps = {
  readonly organization: AdminOrganization
  readonly close: () => void
  readonly changed: () => void
}

export function QuotasDialog({ organization: { slug, quotas }, close, changed }: DialogProps) {
  const before = QUOTAS.map(([name]) => [name, quotas[name] === null ? '' : String(quotas[name])] as const)
  const typed = useSignal(Object.fromEntries(before) as Record<QuotaName, string>)
  const altered = QUOTAS.filter(([name], at) => typed.value[name] !== before[at]?.[1])
  const set = useAction(() => {
    const body = altered.map(([name]) => [name, typed.value[name] === '' ? null : Number(typed.value[name])])
    return operate(pathTo`/organizations/${slug}/quotas`, { method: 'POST', body: Object.fromEntries(body) })
  })
  const options = altered.map(([name, , option]) => [option, typed.value[name] || 'default'])
  return (
    <ActionDialog
      title={`Quotas of ${slug}`}
      action={set}
      done={changed}
      verb="Set"
      busyWord="Setting …"
      command={commandOf(['org', 'quota', slug], Object.fromEntries(options))}
      close={close}
    >
      <p>Leave a field empty for the configured limit. VMs that exist keep running when a quota falls below them.</p>
      {QUOTAS.map(([name, label]) => (
        <TextField
          key={name}
          name={name}
          label={label}
          inputMode="numeric"
          value={typed.value[name]}
          change={value => (typed.value = { ...typed.value, [name]: value.trim() })}
          problem={set.problem}
        />
      ))}
    </ActionDialog>
  )
}
