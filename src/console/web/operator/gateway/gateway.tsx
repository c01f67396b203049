// The inference gateway: its VMs and their update, upstreams, and live metrics of its requests.

import { useSignal } from '@preact/signals'
import type { AdminGatewayVms } from '../../../../contract/admin/gateway-vms.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Card, Empty, Note, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Digest, Foreign, StateMark, Time } from '../../parts/text.tsx'
import { GatewayCharts } from './gateway-charts.tsx'
import { GatewayLog } from './gateway-log.tsx'
import { Upstreams } from './upstreams.tsx'

type GatewayVm = AdminGatewayVms['gateways'][number]

const PLACES = {
  off: 'The gateway is off: listen.inference is empty.',
  host: 'The gateway runs in the daemon (inference.placement is "host"), so it has no attestation of its own.',
  vm: null,
} as const

export function GatewayPage() {
  const found = useLoaded('/inference', options => operate<AdminGatewayVms>('/inference', options), {
    topics: ['gateway'],
  })
  const isUpdating = useSignal(false)
  const { data } = found
  return (
    <Page
      title="Gateway"
      command="strongroom inference show"
      actions={
        data?.placement === 'vm' &&
        may('POST /inference/update') && (
          <button type="button" onClick={() => (isUpdating.value = true)}>
            Update
          </button>
        )
      }
    >
      <Shown of={found} what="the gateway">
        {({ placement, problem, gateways }) => (
          <>
            {PLACES[placement] !== null && (
              <Note>
                <p>{PLACES[placement]}</p>
              </Note>
            )}
            {problem !== null && (
              <Note tone="bad">
                <p>
                  <Foreign text={problem} />
                </p>
              </Note>
            )}
            {placement === 'vm' && <Vms gateways={gateways} />}
            {placement !== 'off' && <GatewayCharts />}
            {placement !== 'off' && <Upstreams />}
            {placement === 'vm' && may('GET /inference/log') && <GatewayLog />}
          </>
        )}
      </Shown>
      {isUpdating.value && (
        <UpdateDialog
          close={() => (isUpdating.value = false)}
          updated={() => {
            isUpdating.value = false
            found.reload()
          }}
        />
      )}
    </Page>
  )
}

const COLUMNS: readonly Column<GatewayVm>[] = [
  { name: 'VM', cell: ({ vm }) => <Digest value={vm} /> },
  { name: 'State', cell: row => <StateOf row={row} /> },
  { name: 'Since', cell: ({ since }) => <Time at={since} /> },
  {
    name: 'Configuration',
    cell: ({ current }) => <StateMark word={current ? 'current' : 'older'} tone={current ? 'good' : 'warn'} />,
  },
  { name: 'workload.json', cell: ({ workload_sha256 }) => <Digest value={workload_sha256} /> },
  {
    name: 'Requests',
    isNumber: true,
    cell: row => (row.requests_running === null ? '–' : countText(row.requests_running)),
  },
  { name: 'Usage records', isNumber: true, cell: row => <Booked row={row} /> },
]

function StateOf({ row: { state, problem, reason } }: { row: GatewayVm }) {
  const remark = problem ?? reason
  return (
    <>
      <StateMark word={state} />
      {remark !== null && (
        <p class="hint">
          <Foreign text={remark} />
        </p>
      )}
    </>
  )
}

function Booked({ row: { usage_booked: booked, usage_waiting: waiting } }: { row: GatewayVm }) {
  return <>{countText(booked) + (waiting === null || waiting === 0 ? '' : `, ${countText(waiting)} waiting`)}</>
}

function Vms({ gateways }: { gateways: readonly GatewayVm[] }) {
  return (
    <Card title="VMs" wide>
      {gateways.length === 0 ? (
        <Empty title="No VMs yet" />
      ) : (
        <Table label="VMs of the gateway" columns={COLUMNS} rows={gateways} keyOf={({ vm }) => vm} />
      )}
    </Card>
  )
}

function UpdateDialog({ close, updated }: { close: () => void; updated: () => void }) {
  const update = useAction(() => operate('/inference/update', { method: 'POST' }))
  return (
    <ActionDialog
      title="Update the gateway"
      action={update}
      done={updated}
      verb="Update"
      busyWord="Starting a new VM …"
      command={commandOf(['inference', 'update'])}
      close={close}
    >
      <p>A new VM starts. Once it is verified, it serves new requests. The old VM stops after its last request.</p>
    </ActionDialog>
  )
}
