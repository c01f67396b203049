// Instances of all organizations: filters in the address, and a list of any length.

import type { AdminInstance, AdminInstanceList } from '../../../../contract/admin/admin.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { address, setQuery } from '../../core/router.ts'
import { operate } from '../../core/session.ts'
import { Choice, TextField } from '../../parts/field.tsx'
import { Empty, Note, Page, Shown } from '../../parts/page.tsx'
import { type Column, LongTable } from '../../parts/table.tsx'
import { Foreign, Link, StateMark, Time } from '../../parts/text.tsx'

/** The statuses of `strongroom instance list --status`; empty for all. */
const STATUSES = [
  ['', 'all'],
  ['living', 'living'],
  ['provisioning', 'provisioning'],
  ['ready', 'ready'],
  ['failed', 'failed'],
  ['terminating', 'terminating'],
  ['terminated', 'terminated'],
] as const

const limit = 10_000

export function InstancesPage() {
  const { query } = address.value
  const organization = query.get('organization') ?? ''
  const status = STATUSES.find(([word]) => word === query.get('status'))?.[0] ?? 'living'
  const name = query.get('name') ?? ''
  const asked = Object.entries({ organization, status, name, limit: String(limit) }).filter(([, text]) => text !== '')
  const path = `/instances?${new URLSearchParams(asked)}`
  const list = useLoaded(path, options => operate<AdminInstanceList>(path, options), { topics: ['instances'] })
  const command = commandOf(['instance', 'list'], {
    org: organization || null,
    status: status || null,
    name: name || null,
  })
  return (
    <Page title="Instances" command={command}>
      <search class="filters">
        <Choice label="Status" isCompact value={status} change={word => setQuery('status', word)} options={STATUSES} />
        <TextField
          label="Organization"
          type="search"
          value={organization}
          change={text => setQuery('organization', text)}
        />
        <TextField label="Name begins" type="search" value={name} change={text => setQuery('name', text)} />
      </search>
      <Shown of={list} what="instances">
        {({ instances, more }) => (
          <>
            {more && (
              <Note tone="warn">
                <p>Only the newest {countText(limit)} are shown; choose fewer by a filter.</p>
              </Note>
            )}
            <p class="count" role="status">
              {instances.length === 1 ? '1 instance' : `${countText(instances.length)} instances`}
            </p>
            {instances.length === 0 ? (
              <Empty title="No instance fits">
                <p>Organizations create instances with their keys. Ended ones stay on record for a while.</p>
              </Empty>
            ) : (
              <LongTable label="Instances" columns={COLUMNS} rows={instances.toReversed()} keyOf={({ id }) => id} />
            )}
          </>
        )}
      </Shown>
    </Page>
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
  { name: 'Model', isWide: true, share: 1.4, cell: row => <Foreign text={row.inference_model} /> },
  { name: 'Egress', isNumber: true, isWide: true, cell: row => bytesText(row.egress_bytes) },
  { name: 'Created', cell: row => <Time at={row.created_at} /> },
]
