// The transparency log: its tree, its witnesses, and its newest entries.

import type { Static } from '@sinclair/typebox'
import type { AdminLog, AdminLogEntries } from '../../../../contract/admin/log.ts'
import { countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import type { LoadRequest } from '../../core/request.ts'
import { operate } from '../../core/session.ts'
import { Card, Empty, Facts, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Digest, Foreign, StateMark, Time } from '../../parts/text.tsx'

type Witness = AdminLog['witnesses'][number]
type Entry = Static<typeof AdminLogEntries>['entries'][number]

const entriesShown = 100

export function LogPage() {
  const found = useLoaded('/log', options => operate<AdminLog>('/log', options), { topics: ['status'] })
  const path = `/log/entries?limit=${entriesShown}`
  const load = (options: LoadRequest) => operate<Static<typeof AdminLogEntries>>(path, options)
  const entries = useLoaded(path, load, { topics: ['status'] })
  return (
    <Page title="Log" lead="Public record of what this host serves" command="strongroom log status">
      <Shown of={found} what="the log">
        {log => (
          <div class="cards">
            <Card title="Tree">
              <Facts
                rows={[
                  ['Entries', countText(log.size)],
                  ['Published', countText(log.shown)],
                  ['Key', <Digest value={log.key} none="none yet" />],
                ]}
              />
            </Card>
            <Card title="Witnesses">
              {log.witnesses.length === 0 ? (
                <Empty title="No witnesses">
                  <p>Without a witness, clients have no proof that all of them see the same log.</p>
                </Empty>
              ) : (
                <Table label="Witnesses" columns={WITNESS_COLUMNS} rows={log.witnesses} keyOf={({ name }) => name} />
              )}
            </Card>
          </div>
        )}
      </Shown>
      <Card title="Newest entries" wide>
        <CommandLine command={`strongroom log show --limit ${entriesShown}`} />
        <Shown of={entries} what="entries">
          {data =>
            data.entries.length === 0 ? (
              <Empty title="No entries yet" />
            ) : (
              <Table
                label="Entries"
                columns={ENTRY_COLUMNS}
                rows={data.entries.toReversed()}
                keyOf={({ index }) => String(index)}
              />
            )
          }
        </Shown>
      </Card>
    </Page>
  )
}

const WITNESS_COLUMNS: readonly Column<Witness>[] = [
  { name: 'Witness', cell: ({ name }) => <Foreign text={name} /> },
  { name: 'Cosigned', cell: ({ cosigned_at }) => <Time at={cosigned_at} none="never" /> },
  { name: 'Size', isNumber: true, cell: ({ size }) => (size === null ? '–' : countText(size)) },
  {
    name: 'State',
    cell: ({ problem }) => (problem === null ? <StateMark word="good" /> : <Foreign text={problem} />),
  },
]

const ENTRY_COLUMNS: readonly Column<Entry>[] = [
  { name: 'Entry', isNumber: true, cell: ({ index }) => countText(index) },
  { name: 'Time', cell: ({ at }) => <Time at={at} /> },
  { name: 'Kind', cell: ({ entry }) => <Foreign text={kindOf(entry)} /> },
  { name: 'Content', cell: ({ entry }) => <Foreign text={entry} /> },
]

function kindOf(entry: string): string {
  return /"kind":"([a-z-]+)"/.exec(entry)?.[1] ?? 'unknown'
}
