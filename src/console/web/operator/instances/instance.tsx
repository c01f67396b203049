// One instance: its state, egress and limit, events, console text, and end.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminEventList, AdminInstance } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import type { LoadRequest } from '../../core/request.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Card, Empty, Facts, Meter, Note, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Foreign, Instant, Link, StateMark, Time } from '../../parts/text.tsx'
import { FollowedText } from '../followed-text.tsx'
import { RaiseDialog } from './egress.tsx'
import { UsageCard } from './usage.tsx'

type AdminEvent = Static<typeof AdminEventList>['events'][number]

export function InstancePage({ organization, name }: { organization: string; name: string }) {
  const ref = `${organization}/${name}`
  const path = `/instance?ref=${encodeURIComponent(ref)}`
  const found = useLoaded(path, options => operate<AdminInstance>(path, options), { topics: ['instances'] })
  const open = useSignal<'none' | 'delete' | 'raise'>('none')
  const close = () => {
    open.value = 'none'
  }
  const changed = () => {
    close()
    found.reload()
  }
  const { data } = found
  const isLiving = data !== null && data.status !== 'terminated' && data.status !== 'terminating'
  return (
    <Page
      title={ref}
      lead={<Link href="/instances">Instances</Link>}
      command={commandOf(['instance', 'show', ref])}
      actions={
        isLiving &&
        may('DELETE /instance') && (
          <button type="button" class="danger" onClick={() => (open.value = 'delete')}>
            Delete
          </button>
        )
      }
    >
      <Shown of={found} what="the instance">
        {instance => (
          <>
            <Failure instance={instance} />
            <div class="cards">
              <StateCard instance={instance} />
              <EgressCard instance={instance} raise={() => (open.value = 'raise')} />
            </div>
            {instance.vm !== null && <UsageCard reference={ref} />}
            {may('GET /instance/console') && instance.vm !== null && (
              <ConsoleText reference={ref} vm={instance.vm.id} />
            )}
            <EventsCard reference={ref} />
            {open.value === 'raise' && (
              <RaiseDialog reference={ref} instance={instance} close={close} changed={changed} />
            )}
          </>
        )}
      </Shown>
      {open.value === 'delete' && <DeleteDialog reference={ref} close={close} changed={changed} />}
    </Page>
  )
}

function Failure({ instance: { failure_code: code, failure_message: message } }: { instance: AdminInstance }) {
  if (code === null) return null
  return (
    <Note tone="bad">
      <p>
        <strong>{code}</strong> <Foreign text={message} none="" />
      </p>
    </Note>
  )
}

const tailBytes = 65_536

/** Shows the console. Another VM of the same instance has another console. */
function ConsoleText({ reference, vm }: { reference: string; vm: string }) {
  const query = new URLSearchParams({ ref: reference, tail: String(tailBytes), follow: 'true' })
  const command = commandOf(['instance', 'console', reference], { follow: true })
  return <FollowedText title="Console" path={`/instance/console?${query}`} of={vm} command={command} />
}

function StateCard({ instance }: { instance: AdminInstance }) {
  const { vm } = instance
  return (
    <Card title="State">
      <Facts
        rows={[
          ['Status', <StateMark word={instance.status} />],
          ['Host name', <Foreign text={instance.hostname} />],
          ['Agent', <Foreign text={instance.agent} />],
          ['Model', <Foreign text={instance.inference_model} />],
          ['VM', vm === null ? 'none' : <Foreign text={`${vm.id} ${vm.state}`} />],
          vm === null ? null : ['Address', <Foreign text={[vm.address, vm.address_v6].filter(Boolean).join(', ')} />],
          ['Created', <Instant at={instance.created_at} />],
          ['Ready', <Instant at={instance.ready_at} none="not yet" />],
          ['Attested', <Instant at={instance.attested_at} none="not yet" />],
          instance.terminated_at === null ? null : ['Terminated', <Instant at={instance.terminated_at} />],
          instance.terminated_reason === null ? null : ['Reason', <Foreign text={instance.terminated_reason} />],
          ['Public key', <Foreign text={instance.public_key} />],
        ]}
      />
    </Card>
  )
}

function EgressCard({ instance, raise }: { instance: AdminInstance; raise: () => void }) {
  const { egress_bytes: used, egress_limit_bytes: limit } = instance
  return (
    <Card
      title="Egress"
      actions={
        limit !== null &&
        may('POST /instance/egress-limit') && (
          <button type="button" onClick={raise}>
            Raise
          </button>
        )
      }
    >
      {limit === null ? (
        <Facts rows={[['Sent', `${bytesText(used)}; the limit applies only with a VM`]]} />
      ) : (
        <Meter label="Total" used={used} total={limit} text={`${bytesText(used)} of ${bytesText(limit)}`} />
      )}
      <Facts
        rows={[
          ['Last sample', <Time at={instance.egress_observed_at} none="none yet" />],
          ['Blocked', <Instant at={instance.egress_block_applied_at} none="no" />],
          instance.rescue_bytes === null ? null : ['SSH replies since the block', bytesText(instance.rescue_bytes)],
        ]}
      />
    </Card>
  )
}

const EVENT_COLUMNS: readonly Column<AdminEvent>[] = [
  { name: 'Time', cell: ({ at }) => <Instant at={at} /> },
  { name: 'Event', cell: ({ kind }) => <Foreign text={kind} /> },
  { name: 'Detail', cell: ({ detail }) => <Foreign text={detailText(detail)} /> },
]

/** Formats details: `state: ready, by: operator`. */
export function detailText(detail: Readonly<Record<string, unknown>>): string {
  return Object.entries(detail)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ')
}

function EventsCard({ reference }: { reference: string }) {
  const path = `/instance/events?ref=${encodeURIComponent(reference)}`
  const load = (options: LoadRequest) => operate<Static<typeof AdminEventList>>(path, options)
  const list = useLoaded(path, load, { topics: ['instances'] })
  return (
    <Card title="Events" wide>
      <CommandLine command={commandOf(['instance', 'logs', reference])} />
      <Shown of={list} what="events">
        {({ events }) =>
          events.length === 0 ? (
            <Empty title="No events" />
          ) : (
            <Table
              label="Events"
              columns={EVENT_COLUMNS}
              rows={events.toReversed()}
              keyOf={({ id, kind }) => `${id} ${kind}`}
            />
          )
        }
      </Shown>
    </Card>
  )
}

function DeleteDialog({ reference, close, changed }: { reference: string; close: () => void; changed: () => void }) {
  const remove = useAction(() => operate(`/instance?ref=${encodeURIComponent(reference)}`, { method: 'DELETE' }))
  return (
    <ActionDialog
      title={`Delete ${reference}`}
      action={remove}
      done={changed}
      verb="Delete permanently"
      busyWord="Deleting …"
      tone="danger"
      command={commandOf(['instance', 'delete', reference])}
      close={close}
    >
      <p>This deletes the instance and its data permanently. Its record is kept for at least 30 days.</p>
    </ActionDialog>
  )
}
