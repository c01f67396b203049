// Organizations: the list, and a new one.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminOrganization, AdminOrganizationList } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { address, go, setQuery } from '../../core/router.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField, Tick } from '../../parts/field.tsx'
import { Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign, Link, StateMark, Time } from '../../parts/text.tsx'
import { instancesText, usdHeldText } from './held.ts'

type List = Static<typeof AdminOrganizationList>

export function OrganizationsPage() {
  const deleted = address.value.query.get('deleted') === 'true'
  const isCreating = useSignal(false)
  const path = `/organizations?deleted=${deleted}`
  const list = useLoaded(path, options => operate<List>(path, options), { topics: ['organizations', 'keys'] })
  return (
    <Page
      title="Organizations"
      command={commandOf(['org', 'list'], { deleted })}
      actions={
        may('POST /organizations') && (
          <button type="button" class="primary" onClick={() => (isCreating.value = true)}>
            New organization
          </button>
        )
      }
    >
      <Tick
        label="Show deleted organizations"
        value={deleted}
        change={value => setQuery('deleted', value ? 'true' : '')}
      />
      <Shown of={list} what="organizations">
        {({ organizations }) =>
          organizations.length === 0 ? (
            <Empty title="No organizations yet">
              <p>An organization owns keys, instances, builds and budgets. Create one, then create a key for it.</p>
            </Empty>
          ) : (
            <Table label="Organizations" columns={COLUMNS} rows={organizations} keyOf={({ slug }) => slug} />
          )
        }
      </Shown>
      {isCreating.value && <CreateDialog close={() => (isCreating.value = false)} />}
    </Page>
  )
}

const COLUMNS: readonly Column<AdminOrganization>[] = [
  {
    name: 'Organization',
    cell: ({ slug }) => (
      <Link href={pathTo`/organizations/${slug}`}>
        <Foreign text={slug} />
      </Link>
    ),
  },
  { name: 'Status', cell: ({ status }) => <StateMark word={status} /> },
  { name: 'Instances', cell: row => instancesText(row) },
  { name: 'Keys', isNumber: true, cell: row => countText(row.keys_active) },
  { name: 'Tokens this month', isNumber: true, cell: row => countText(row.month_tokens) },
  { name: 'Cost this month', isNumber: true, cell: row => <Spent row={row} /> },
  { name: 'Created', cell: ({ created_at }) => <Time at={created_at} /> },
]

function Spent({ row }: { row: AdminOrganization }) {
  const budget = row.budget_usd === null ? '' : ` of ${usdText(row.budget_usd)}${usdHeldText(row)}`
  return (
    <>
      {usdText(row.month_cost_usd)}
      {budget}
    </>
  )
}

function CreateDialog({ close }: { close: () => void }) {
  const slug = useSignal('')
  const create = useAction(() => operate('/organizations', { method: 'POST', body: { slug: slug.value } }))
  return (
    <ActionDialog
      title="New organization"
      action={create}
      done={() => go(pathTo`/organizations/${slug.value}`)}
      verb="Create"
      busyWord="Creating …"
      command={commandOf(['org', 'create', slug.value || 'SLUG'])}
      isReady={slug.value !== ''}
      close={close}
    >
      <TextField
        label="Slug"
        name="slug"
        value={slug.value}
        change={value => (slug.value = value.trim())}
        problem={create.problem}
        required
        hint="Part of every host name. Lowercase letters, digits and hyphens, at most 32 characters. A slug cannot be used again."
      />
    </ActionDialog>
  )
}
