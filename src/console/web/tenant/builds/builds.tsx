// Builds of the tenant: submits one, and opens one by its id.

import { useSignal } from '@preact/signals'
import { pathTo } from '../../core/path.ts'
import { go } from '../../core/router.ts'
import { TextField } from '../../parts/field.tsx'
import { Card, Empty, Page } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign, Link, Time } from '../../parts/text.tsx'
import type { KnownBuild } from './known-build.ts'
import { knownBuilds } from './known-builds.ts'
import { NewBuild } from './new-build.tsx'

export function BuildsPage() {
  const isSubmitting = useSignal(false)
  const id = useSignal('')
  const open = (event: Event) => {
    event.preventDefault()
    if (id.value !== '') go(pathTo`/tenant/builds/${id.value}`)
  }
  const { value: builds } = knownBuilds
  return (
    <Page
      title="Builds"
      lead="Each build runs in its own VM, which proves what it was built from"
      actions={
        <button type="button" class="primary" onClick={() => (isSubmitting.value = true)}>
          New build
        </button>
      }
    >
      <Card title="Builds submitted in this tab" wide>
        {builds.length === 0 ? (
          <Empty title="No builds yet">
            <p>To see a build from another tab, open it by its id.</p>
          </Empty>
        ) : (
          <Table label="Builds" columns={COLUMNS} rows={builds} keyOf={build => build.id} />
        )}
      </Card>
      <form class="filters" onSubmit={open}>
        <TextField label="Build id" value={id.value} change={text => (id.value = text.trim())} />
        <button type="submit">Open</button>
      </form>
      {isSubmitting.value && <NewBuild close={() => (isSubmitting.value = false)} />}
    </Page>
  )
}

const COLUMNS: readonly Column<KnownBuild>[] = [
  { name: 'Build', cell: ({ id }) => <Link href={pathTo`/tenant/builds/${id}`}>{id.slice(0, 8)}</Link> },
  { name: 'Source', cell: ({ source }) => <Foreign text={source.kind === 'git' ? source.url : source.name} /> },
  { name: 'Submitted', cell: ({ atMs }) => <Time at={new Date(atMs).toISOString()} /> },
]
