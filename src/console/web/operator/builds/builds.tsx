// Attested builds of all organizations: the list.

import type { Static } from '@sinclair/typebox'
import type { AdminBuild, AdminBuildList } from '../../../../contract/admin/admin.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { address, setQuery } from '../../core/router.ts'
import { operate } from '../../core/session.ts'
import { TextField } from '../../parts/field.tsx'
import { Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, LongTable } from '../../parts/table.tsx'
import { Foreign, Link, StateMark, Time } from '../../parts/text.tsx'

const limit = 1_000

export function BuildsPage() {
  const organization = address.value.query.get('organization') ?? ''
  const asked = Object.entries({ organization, limit: String(limit) }).filter(([, text]) => text !== '')
  const path = `/builds?${new URLSearchParams(asked)}`
  const list = useLoaded(path, options => operate<Static<typeof AdminBuildList>>(path, options), { topics: ['builds'] })
  return (
    <Page title="Builds" command={commandOf(['builds', 'list'], { org: organization || null, limit })}>
      <search class="filters">
        <TextField
          label="Organization"
          type="search"
          value={organization}
          change={text => setQuery('organization', text)}
        />
      </search>
      <Shown of={list} what="builds">
        {({ builds }) =>
          builds.length === 0 ? (
            <Empty title="No builds">
              <p>Organizations submit builds with their API keys. Each build runs in its own VM.</p>
            </Empty>
          ) : (
            <>
              <p class="count" role="status">
                {builds.length === limit
                  ? `The newest ${countText(limit)} builds`
                  : builds.length === 1
                    ? '1 build'
                    : `${countText(builds.length)} builds`}
              </p>
              <LongTable label="Builds" columns={COLUMNS} rows={builds} keyOf={({ id }) => id} />
            </>
          )
        }
      </Shown>
    </Page>
  )
}

const COLUMNS: readonly Column<AdminBuild>[] = [
  { name: 'Build', share: 1.2, cell: ({ id }) => <Link href={pathTo`/builds/${id}`}>{id.slice(0, 8)}</Link> },
  { name: 'State', cell: ({ state }) => <StateMark word={state} /> },
  { name: 'Organization', cell: row => <Foreign text={row.organization} none="none" /> },
  { name: 'Source', share: 2, cell: ({ source }) => <Foreign text={sourceText(source)} /> },
  { name: 'Created', cell: row => <Time at={row.created_at} /> },
  { name: 'Finished', cell: row => <Time at={row.finished_at} none="not yet" /> },
]

export function sourceText({ kind, name, ref, size_bytes: sizeBytes }: AdminBuild['source']): string {
  if (kind === 'git') return ref === null ? (name ?? '') : `${name ?? ''} ${ref}`
  return `${name ?? 'archive'}, ${bytesText(sizeBytes ?? 0)}`
}
