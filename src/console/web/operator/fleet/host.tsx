// One host of the fleet: everything that it reports, and its removal: drain, remove, forget.

import { useSignal } from '@preact/signals'
import type { FleetHost } from '../../../../contract/admin/fleet.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { Card, Facts, Meter, Note, Page, Shown } from '../../parts/page.tsx'
import { Digest, Foreign, Instant, Link, StateMark, Time } from '../../parts/text.tsx'
import { reportsMs } from './fleet.tsx'
import { type HostAction, HostDialog } from './host-actions.tsx'
import { faultsOf, STATE_TONES, STATES } from './hosts.ts'

export function FleetHostPage({ name }: { name: string }) {
  const path = pathTo`/fleet/hosts/${name}`
  const found = useLoaded(path, options => operate<FleetHost>(path, options), {
    topics: ['events', 'status'],
    everyMs: reportsMs,
  })
  const open = useSignal<HostAction | null>(null)
  const close = () => {
    open.value = null
  }
  const { data } = found
  return (
    <Page
      title={name}
      lead={<Link href="/fleet">Fleet</Link>}
      command={commandOf(['fleet', 'show', name])}
      actions={data !== null && <Actions host={data} choose={action => (open.value = action)} />}
    >
      <Shown of={found} what="the host">
        {host => (
          <>
            <Faults host={host} />
            <div class="cards">
              <StateCard host={host} />
              <RoomCard host={host} />
              <ReleaseCard host={host} />
            </div>
          </>
        )}
      </Shown>
      {open.value !== null && data !== null && (
        <HostDialog action={open.value} host={data} close={close} reload={found.reload} />
      )}
    </Page>
  )
}

/** Actions that the interface would accept: removing a drained host, forgetting a host without a lease. */
function Actions({ host, choose }: { host: FleetHost; choose: (action: HostAction) => void }) {
  const isDraining = host.draining_since !== null
  const hasLease = host.state === 'serving' || host.state === 'draining'
  return (
    <>
      {isDraining && may('POST /fleet/hosts/:name/undrain') && (
        <button type="button" onClick={() => choose('undrain')}>
          Undrain
        </button>
      )}
      {!isDraining && may('POST /fleet/hosts/:name/drain') && (
        <button type="button" onClick={() => choose('drain')}>
          Drain
        </button>
      )}
      {isDraining && host.instances === 0 && may('POST /fleet/hosts/:name/remove') && (
        <button type="button" class="danger" onClick={() => choose('remove')}>
          Remove
        </button>
      )}
      {!hasLease && may('POST /fleet/hosts/:name/forget') && (
        <button type="button" class="danger" onClick={() => choose('forget')}>
          Forget
        </button>
      )}
    </>
  )
}

function Faults({ host }: { host: FleetHost }) {
  const faults = faultsOf(host)
  if (faults.length === 0) return null
  return (
    <Note tone={host.state === 'silent' || host.state === 'lost' ? 'bad' : 'warn'}>
      {faults.map(text => (
        <p key={text}>
          <Foreign text={text} />
        </p>
      ))}
    </Note>
  )
}

function StateCard({ host }: { host: FleetHost }) {
  const faults = faultsOf(host)
  return (
    <Card title="State">
      <Facts
        rows={[
          [
            'State',
            <>
              <StateMark word={host.state} tone={STATE_TONES[host.state]} /> {faults.length === 0 && STATES[host.state]}
            </>,
          ],
          ['This host', host.is_this_host ? 'yes' : 'no'],
          host.draining_since === null ? null : ['Draining since', <Time at={host.draining_since} />],
          ['Last seen', <Time at={host.last_seen_at} none="never" />],
          ['Joined', <Instant at={host.joined_at} />],
          ['Id', <Digest value={host.id} />],
          ['Database role', <Foreign text={host.role} />],
          ['Clock', clockText(host.clock_ahead_ms)],
        ]}
      />
    </Card>
  )
}

function clockText(aheadMs: number | null): string {
  return aheadMs === null ? 'unknown' : `${countText(aheadMs)} ms ahead of the database`
}

const mib = 1_048_576

function RoomCard({ host }: { host: FleetHost }) {
  const { memory_mib_used: memory, memory_mib_total: memoryTotal, vcpus_used: vcpus, vcpus_total: vcpusTotal } = host
  const sizeText = (count: number | null) => (count === null ? 'unknown' : bytesText(count * mib))
  return (
    <Card title="Capacity">
      {memoryTotal !== null && (
        <Meter
          label="Memory"
          used={memory}
          total={memoryTotal}
          text={`${sizeText(memory)} of ${sizeText(memoryTotal)}`}
        />
      )}
      {vcpusTotal !== null && (
        <Meter
          label="vCPUs"
          used={vcpus}
          total={vcpusTotal}
          text={`${vcpus ?? 'unknown'} of ${countText(vcpusTotal)}`}
        />
      )}
      <Facts
        rows={[
          ['Instances', `${countText(host.instances)}, ${countText(host.places_free)} more fit`],
          ['Warm VMs', host.warm === null ? 'unknown' : countText(host.warm)],
          ['Missing', <Foreign text={host.lacking} none="nothing" />],
        ]}
      />
    </Card>
  )
}

function ReleaseCard({ host }: { host: FleetHost }) {
  return (
    <Card title="Release">
      <Facts
        rows={[
          ['Version', <Foreign text={host.version} none="unknown" />],
          ['Newest supported schema', host.schema === null ? 'unknown' : String(host.schema)],
          ['Platform', <Foreign text={host.platform} none="unknown" />],
          ['Domain', <Foreign text={host.domain} none="unknown" />],
          ['Image', <Digest value={host.image} none="none" />],
        ]}
      />
    </Card>
  )
}
