// The person who is logged in: the session, all sessions of the console, and passkeys.

import type { Static } from '@sinclair/typebox'
import type { AdminConsoleSession, AdminConsoleSessionList } from '../../../../contract/admin/console.ts'
import { useAction } from '../../core/action.ts'
import { durationText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { leave, operate, session } from '../../core/session.ts'
import { BusyButton } from '../../parts/dialog.tsx'
import { Card, Facts, Page, ProblemNote, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Foreign, Instant, Time } from '../../parts/text.tsx'
import { PasskeysCard } from './passkeys.tsx'

export function AccountPage() {
  const { value } = session
  const logOut = useAction(leave)
  if (value === null) return null
  return (
    <Page
      title="Account"
      actions={
        <BusyButton
          isBusy={logOut.isBusy}
          tone="plain"
          verb="Sign out"
          busyWord="Signing out …"
          onClick={() => void logOut.run()}
        />
      }
    >
      {logOut.problem !== null && <ProblemNote problem={logOut.problem} />}
      <Card title="Session" wide>
        <Facts
          rows={[
            ['Administrator', <Foreign text={value.actor} />],
            ['Role', value.role],
            ['Signed in with', SIGN_INS[value.by]],
            ['Since', <Instant at={value.began_at} />],
            ['Ends', <Instant at={value.ends_at} />],
            ['Idle timeout', durationText(value.idle_s)],
          ]}
        />
      </Card>
      <PasskeysCard why={value.passkeys.why} name={value.passkeys.rp_id} />
      <SessionsCard />
    </Page>
  )
}

const SIGN_INS = { link: 'a link', passkey: 'a passkey', oidc: 'the identity provider' } as const

const COLUMNS: readonly Column<AdminConsoleSession>[] = [
  { name: 'Administrator', cell: ({ actor }) => <Foreign text={actor} /> },
  { name: 'Role', cell: ({ role }) => role },
  { name: 'Signed in with', cell: ({ by }) => (by === 'oidc' ? 'identity provider' : by) },
  { name: 'Since', cell: ({ began_at }) => <Time at={began_at} /> },
  { name: 'Ends', cell: ({ ends_at }) => <Time at={ends_at} /> },
]

function SessionsCard() {
  const path = '/console/sessions'
  const list = useLoaded(path, options => operate<Static<typeof AdminConsoleSessionList>>(path, options))
  return (
    <Card title="Console sessions" wide>
      <CommandLine command="strongroom console sessions" />
      <Shown of={list} what="sessions">
        {({ sessions }) => <Table label="Sessions" columns={COLUMNS} rows={sessions} keyOf={({ id }) => id} />}
      </Shown>
      <p class="muted">To end all your sessions, run this command on the host:</p>
      <CommandLine command="strongroom console close" />
    </Card>
  )
}
