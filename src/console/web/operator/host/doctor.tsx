// Problems of this host that the daemon itself can detect. `strongroom doctor` on the host finds the others.

import { useSignal } from '@preact/signals'
import type { AdminLeak, AdminLeaks } from '../../../../contract/admin/admin.ts'
import type { AdminClock } from '../../../../contract/admin/clock.ts'
import { useAction } from '../../core/action.ts'
import { durationText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Card, Empty, Facts, Note, Page, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Digest, Foreign, Instant, StateMark } from '../../parts/text.tsx'
import { Problems, useStatus } from './overview.tsx'

export function DoctorPage() {
  const status = useStatus()
  return (
    <Page title="Doctor" lead="Problems that the daemon can detect">
      <Note>
        <p>To check firmware, programs, ports and DNS delegation too, run this command as root on the host:</p>
        <CommandLine command="strongroom doctor" />
      </Note>
      <Shown of={status} what="the status">
        {found => <Problems problems={found.problems} />}
      </Shown>
      <ClockCard />
      <LeaksCard />
      <Shown of={status} what="the status">
        {found => (
          <Card title="Keys of this host" wide>
            <Facts
              rows={[
                ['Operator key', <Digest value={found.operator_key.digest} />],
                ['Authority', <Foreign text={found.tls.ca_file} none="none: the operator's own certificate is used" />],
              ]}
            />
          </Card>
        )}
      </Shown>
    </Page>
  )
}

function ClockCard() {
  const found = useLoaded('/clock', options => operate<AdminClock>('/clock', options), { topics: ['status'] })
  const isConfirming = useSignal(false)
  return (
    <Card
      title="Clock"
      wide
      actions={
        found.data?.state === 'held' &&
        may('POST /clock/confirm') && (
          <button type="button" onClick={() => (isConfirming.value = true)}>
            Confirm
          </button>
        )
      }
    >
      <CommandLine command="strongroom clock" />
      <Shown of={found} what="the clock">
        {({ state, now, ahead_s: ahead, problem, remedy }) => (
          <>
            <Facts
              rows={[
                ['State', <StateMark word={state} />],
                ['Now', <Instant at={now} />],
                Math.abs(ahead) < 2 ? null : [ahead < 0 ? 'Behind' : 'Ahead', durationText(Math.abs(ahead))],
              ]}
            />
            {problem !== null && (
              <Note tone="warn">
                <p>
                  {problem}; {remedy}
                </p>
              </Note>
            )}
          </>
        )}
      </Shown>
      {isConfirming.value && (
        <ConfirmClock
          close={() => (isConfirming.value = false)}
          confirmed={() => {
            isConfirming.value = false
            found.reload()
          }}
        />
      )}
    </Card>
  )
}

function ConfirmClock({ close, confirmed }: { close: () => void; confirmed: () => void }) {
  const confirm = useAction(() => operate('/clock/confirm', { method: 'POST' }))
  return (
    <ActionDialog
      title="Confirm the clock"
      action={confirm}
      done={confirmed}
      verb="The clock is right"
      busyWord="Confirming …"
      tone="danger"
      command="strongroom clock confirm"
      close={close}
    >
      <p>
        Compare this clock with another one first. After you confirm it, the daemon deletes everything whose retention
        has ended by this clock.
      </p>
    </ActionDialog>
  )
}

const LEAK_COLUMNS: readonly Column<AdminLeak>[] = [
  { name: 'Resource', cell: ({ kind, name }) => <Foreign text={`${kind} ${name}`} /> },
  { name: 'Detail', cell: ({ detail }) => <Foreign text={detail} /> },
  { name: 'Remedy', cell: ({ remedy }) => <Foreign text={remedy} /> },
]

function LeaksCard() {
  const found = useLoaded('/leaks', options => operate<AdminLeaks>('/leaks', options))
  return (
    <Card
      title="Leaks"
      wide
      actions={
        <button type="button" onClick={found.reload} disabled={found.isLoading} aria-busy={found.isLoading}>
          {found.isLoading ? 'Checking …' : 'Check again'}
        </button>
      }
    >
      <CommandLine command="strongroom doctor --leaks" />
      <Shown of={found} what="the comparison">
        {({ leaks }) =>
          leaks.length === 0 ? (
            <Empty title="No leaks: ledger, kernel and disk agree" />
          ) : (
            <Table
              label="Differences"
              columns={LEAK_COLUMNS}
              rows={leaks}
              keyOf={({ kind, name }) => `${kind} ${name}`}
            />
          )
        }
      </Shown>
    </Card>
  )
}
