// Search over organizations, instances, keys and builds. The address has the text, without the secret of a key.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import type { AdminSearch } from '../../../contract/admin/views/search.ts'
import { searchTerm } from '../../../contract/admin/views/search-term.ts'
import { useLoaded } from '../core/loaded.ts'
import { pathTo } from '../core/path.ts'
import { address, setQuery } from '../core/router.ts'
import { operate } from '../core/session.ts'
import { TextField } from '../parts/field.tsx'
import { Card, Empty, Note, Page, Shown } from '../parts/page.tsx'
import { Foreign, Link, StateMark } from '../parts/text.tsx'

/** Pause in typing before a search. */
const pauseMs = 250

export function SearchPage() {
  const term = searchTerm(address.value.query.get('q') ?? '')
  const typed = useSignal(term)
  useEffect(() => {
    const timer = setTimeout(() => setQuery('q', searchTerm(typed.value)), pauseMs)
    return () => clearTimeout(timer)
  }, [typed.value])
  const path = term === '' ? null : `/search?${new URLSearchParams({ q: term })}`
  const found = useLoaded(path, options => operate<AdminSearch>(path ?? '', options))
  return (
    <Page title="Search" lead="Organizations, instances, keys and builds">
      <search class="filters">
        <TextField
          label="Search for"
          type="search"
          value={typed.value}
          change={text => (typed.value = text)}
          hint="Part of a name, a key prefix such as ca_k3v9x2ab, or the start of a build id"
        />
      </search>
      {path !== null && (
        <Shown of={found} what="results">
          {results => <Results results={results} />}
        </Shown>
      )}
    </Page>
  )
}

function Results({ results: { organizations, instances, keys, builds, more } }: { results: AdminSearch }) {
  const count = organizations.length + instances.length + keys.length + builds.length
  return (
    <>
      <p class="count" role="status">
        {count === 0 ? 'No results' : count === 1 ? '1 result' : `${count} results`}
      </p>
      {count === 0 && <Empty title="Nothing matches this text" />}
      {more && (
        <Note>
          <p>Each list shows at most 20 results. Type more of the name to see the others.</p>
        </Note>
      )}
      <div class="cards">
        <Hits
          title="Organizations"
          rows={organizations.map(({ slug, status }) => ({
            ...{ key: slug, href: pathTo`/organizations/${slug}`, text: slug, state: status },
          }))}
        />
        <Hits
          title="Instances"
          rows={instances.map(({ organization, name, status }) => ({
            key: `${organization}/${name}`,
            href: pathTo`/instances/${organization}/${name}`,
            ...{ text: `${organization}/${name}`, state: status },
          }))}
        />
        <Hits
          title="Keys"
          rows={keys.map(({ kind, prefix, organization, state }) => ({
            key: `${kind}_${prefix}`,
            href: pathTo`/organizations/${organization}`,
            ...{ text: `${kind}_${prefix}`, state, remark: organization },
          }))}
        />
        <Hits
          title="Builds"
          rows={builds.map(({ id, organization, state, source }) => ({
            key: id,
            href: pathTo`/builds/${id}`,
            ...{ text: id.slice(0, 8), state, remark: [organization, source].filter(Boolean).join(', ') },
          }))}
        />
      </div>
    </>
  )
}

type Hit = {
  readonly key: string
  readonly href: string
  readonly text: string
  readonly state: string
  readonly remark?: string
}

function Hits({ title, rows }: { title: string; rows: readonly Hit[] }): ComponentChildren {
  if (rows.length === 0) return null
  return (
    <Card title={title}>
      <ul class="hits">
        {rows.map(({ key, href, text, state, remark = '' }) => (
          <li key={key}>
            <Link href={href}>
              <Foreign text={text} />
            </Link>{' '}
            <StateMark word={state} /> {remark !== '' && <Foreign text={remark} />}
          </li>
        ))}
      </ul>
    </Card>
  )
}
