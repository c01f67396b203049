// The record of commands: who requested which change, and its result.

import type { Static } from '@sinclair/typebox'
import type { AdminCommand, AdminCommandList } from '../../../../contract/admin/events.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import type { LoadRequest } from '../../core/request.ts'
import { address, setQuery } from '../../core/router.ts'
import { operate } from '../../core/session.ts'
import { Choice, TextField } from '../../parts/field.tsx'
import { Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, LongTable } from '../../parts/table.tsx'
import { Foreign, StateMark, Time } from '../../parts/text.tsx'
import { detailText } from '../instances/instance.tsx'

const limit = 1_000

const AGES = [
  ['1h', 'Last hour', 3_600],
  ['24h', 'Last day', 86_400],
  ['7d', 'Last week', 604_800],
  ['ever', 'All time', null],
] as const

export function EventsPage() {
  const { query } = address.value
  const actor = query.get('actor') ?? ''
  const age = AGES.find(([word]) => word === (query.get('since') ?? '24h')) ?? AGES[1]
  const [word, , seconds] = age
  const key = `/events?${new URLSearchParams({ actor, age: word })}`
  const load = (options: LoadRequest) => {
    const since = seconds === null ? {} : { since: String(Date.now() - seconds * 1000) }
    const asked = new URLSearchParams({ ...since, ...(actor === '' ? {} : { actor }), limit: String(limit) })
    return operate<Static<typeof AdminCommandList>>(`/events?${asked}`, options)
  }
  const list = useLoaded(key, load, { topics: ['events'] })
  const command = commandOf(['events'], { since: word === 'ever' ? null : word, actor: actor || null, limit })
  return (
    <Page title="Events" lead="Changes by administrators, with their results" command={command}>
      <search class="filters">
        <Choice
          label="Period"
          value={word}
          change={value => setQuery('since', value)}
          options={AGES.map(([value, words]) => [value, words] as const)}
        />
        <TextField label="Administrator" type="search" value={actor} change={text => setQuery('actor', text)} />
      </search>
      <Shown of={list} what="events">
        {({ commands }) =>
          commands.length === 0 ? (
            <Empty title="No commands in this period" />
          ) : (
            <>
              <p class="count" role="status">
                {commands.length === 1 ? '1 command' : `${countText(commands.length)} commands`}
              </p>
              <LongTable
                label="Events"
                columns={COLUMNS}
                rows={commands.toReversed()}
                keyOf={({ seq }) => String(seq)}
              />
            </>
          )
        }
      </Shown>
    </Page>
  )
}

const COLUMNS: readonly Column<AdminCommand>[] = [
  { name: 'Time', cell: ({ at }) => <Time at={at} /> },
  { name: 'Administrator', cell: ({ actor }) => <Foreign text={actor} /> },
  { name: 'Through', share: 0.7, cell: ({ socket }) => <Foreign text={socket} /> },
  { name: 'Command', cell: ({ operation }) => <code>{operation}</code> },
  { name: 'Arguments', share: 2, cell: row => <Foreign text={detailText(row.arguments)} none="" /> },
  { name: 'Result', cell: row => <Result of={row} /> },
]

function Result({ of: { result, times } }: { of: AdminCommand }) {
  const tone = result === 'ok' ? 'good' : result === null ? 'busy' : 'bad'
  return (
    <>
      <StateMark word={result ?? 'running'} tone={tone} />
      {times > 1 && <span class="muted"> {times} times</span>}
    </>
  )
}
