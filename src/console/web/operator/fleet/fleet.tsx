// The hosts that share this host's directory: their activity, capacity and problems.

import type { FleetHost, FleetHosts } from '../../../../contract/admin/fleet.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { operate } from '../../core/session.ts'
import { Empty, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign, Link, StateMark, Time } from '../../parts/text.tsx'
import { disagreements, faultsOf, STATE_TONES } from './hosts.ts'

/** Poll interval: hosts report to the directory, whose changes this host's live stream does not cover. */
export const reportsMs = 5_000

export function FleetPage() {
  const path = '/fleet/hosts'
  const list = useLoaded(path, options => operate<FleetHosts>(path, options), {
    topics: ['events', 'status'],
    everyMs: reportsMs,
  })
  return (
    <Page title="Fleet" lead="Hosts that share one directory" command={commandOf(['fleet', 'list'])}>
      <Shown of={list} what="the hosts">
        {({ hosts }) =>
          hosts.length === 0 ? (
            <Empty title="No hosts in the fleet">
              <p>To add a host, run strongroom fleet join on it.</p>
            </Empty>
          ) : (
            <>
              <Disagreements hosts={hosts} />
              <p class="count" role="status">
                {hosts.length === 1 ? '1 host' : `${countText(hosts.length)} hosts`}
              </p>
              <Table label="Hosts" columns={COLUMNS} rows={hosts} keyOf={({ id }) => id} />
            </>
          )
        }
      </Shown>
    </Page>
  )
}

function Disagreements({ hosts }: { hosts: readonly FleetHost[] }) {
  const found = disagreements(hosts)
  if (found.length === 0) return null
  return (
    <ul class="alerts" aria-label="Differences between hosts">
      {found.map(({ what, detail, remedy }) => (
        <li key={what} class="note warn">
          <strong>{what}</strong>
          <p>
            <Foreign text={detail} />
          </p>
          <p class="remedy">{remedy}</p>
        </li>
      ))}
    </ul>
  )
}

const COLUMNS: readonly Column<FleetHost>[] = [
  {
    name: 'Host',
    cell: ({ name, is_this_host: isThis }) => (
      <span class="row-name">
        <Link href={pathTo`/fleet/${name}`}>
          <Foreign text={name} />
        </Link>
        {isThis && <span class="muted"> this host</span>}
      </span>
    ),
  },
  { name: 'State', cell: ({ state }) => <StateMark word={state} tone={STATE_TONES[state]} /> },
  { name: 'Instances', isNumber: true, cell: host => countText(host.instances) },
  { name: 'Free places', isNumber: true, cell: host => countText(host.places_free) },
  { name: 'Version', cell: host => <Foreign text={host.version} /> },
  { name: 'Last seen', cell: host => <Time at={host.last_seen_at} none="never" /> },
  { name: 'Problems', cell: host => <Foreign text={faultsOf(host).join('; ')} none="none known" /> },
]
