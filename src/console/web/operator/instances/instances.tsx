// Instances of all organizations: filters in the address, and a list of any length.

import { useSignal } from '@preact/signals'
import type { AdminInstance, AdminInstanceList } from '../../../../contract/admin/admin.ts'
import { commandOf } from '../../core/command.ts'
import { shownLine } from '../../core/foreign.ts'
import { bytesText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { address, setQuery } from '../../core/router.ts'
import { may, operate } from '../../core/session.ts'
import { Choice, TextField } from '../../parts/field.tsx'
import { Empty, Note, Page, Shown } from '../../parts/page.tsx'
import { type Column, LongTable } from '../../parts/table.tsx'
import { Foreign, Link, StateMark, Time } from '../../parts/text.tsx'
import { countOf, DeleteFailed } from './delete-failed.tsx'

/** The statuses of `strongroom instance list --status`, and `all`. */
const STATUSES = [
  ['current', 'Not terminated'],
  ['all', 'All'],
  ['living', 'Not failed or terminated'],
  ['provisioning', 'Provisioning'],
  ['ready', 'Ready'],
  ['failed', 'Failed'],
  ['terminating', 'Terminating'],
  ['terminated', 'Terminated'],
] as const

const limit = 10_000

export function InstancesPage() {
  const { query } = address.value
  const organization = query.get('organization') ?? ''
  const status = STATUSES.find(([word]) => word === query.get('status'))?.[0] ?? 'current'
  const name = query.get('name') ?? ''
  const asked = Object.entries({
    organization,
    status: status === 'all' ? '' : status,
    name,
    limit: String(limit),
  }).filter(([, text]) => text !== '')
  const path = `/instances?${new URLSearchParams(asked)}`
  const list = useLoaded(path, options => operate<AdminInstanceList>(path, options), { topics: ['instances'] })
  const deleting = useSignal<readonly AdminInstance[] | null>(null)
  const command = commandOf(['instance', 'list'], {
    org: organization || null,
    status: status === 'all' ? null : status,
    name: name || null,
  })
  return (
    <Page title="Instances" command={command}>
      <search class="filters">
        <Choice label="Status" value={status} change={word => setQuery('status', word)} options={STATUSES} />
        <TextField
          label="Organization"
          type="search"
          value={organization}
          change={text => setQuery('organization', text)}
        />
        <TextField label="Name starts with" type="search" value={name} change={text => setQuery('name', text)} />
      </search>
      <Shown of={list} what="instances">
        {({ instances, more }) => (
          <>
            {more && (
              <Note tone="warn">
                <p>The list shows the newest {countText(limit)} instances. Use the filters to see older ones.</p>
              </Note>
            )}
            <ListHead instances={instances} remove={failed => (deleting.value = failed)} />
            {instances.length === 0 ? (
              <Empty title="No instances match the filters">
                <p>Organizations create instances with their API keys.</p>
              </Empty>
            ) : (
              <LongTable label="Instances" columns={COLUMNS} rows={instances.toReversed()} keyOf={({ id }) => id} />
            )}
          </>
        )}
      </Shown>
      {deleting.value !== null && (
        <DeleteFailed
          instances={deleting.value}
          close={() => (deleting.value = null)}
          changed={() => {
            deleting.value = null
            list.reload()
          }}
        />
      )}
    </Page>
  )
}

type ListHeadProps = {
  readonly instances: readonly AdminInstance[]
  readonly remove: (failed: readonly AdminInstance[]) => void
}

function ListHead({ instances, remove }: ListHeadProps) {
  const failed = instances.filter(({ status }) => status === 'failed')
  return (
    <div class="list-head">
      <p class="count" role="status">
        {instances.length === 1 ? '1 instance' : `${countText(instances.length)} instances`}
      </p>
      {failed.length > 0 && may('DELETE /instance') && (
        <button type="button" class="danger" onClick={() => remove(failed)}>
          Delete {countOf(failed.length)}
        </button>
      )}
    </div>
  )
}

const COLUMNS: readonly Column<AdminInstance>[] = [
  {
    name: 'Instance',
    share: 2,
    cell: ({ organization, name }) => (
      <Link href={pathTo`/instances/${organization}/${name}`}>
        <Foreign text={`${organization}/${name}`} />
      </Link>
    ),
  },
  { name: 'Status', cell: ({ status }) => <StateMark word={status} /> },
  { name: 'Reason', share: 2, cell: row => <Reason of={row} /> },
  { name: 'Model', share: 1.3, cell: row => <Foreign text={row.inference_model} /> },
  { name: 'Egress', isNumber: true, cell: row => bytesText(row.egress_bytes) },
  { name: 'Created', share: 1.2, cell: row => <Time at={row.created_at} /> },
]

/** Shows why an instance failed or was terminated. The whole text is its tooltip, because a row has one line. */
function Reason({
  of: { failure_code: code, failure_message: message, terminated_reason: end },
}: {
  of: AdminInstance
}) {
  const text = code === null ? end : [code, message].filter(Boolean).join(': ')
  return (
    <span title={text === null ? undefined : shownLine(text)}>
      <Foreign text={text} />
    </span>
  )
}
