// The person who is logged in: session and passkeys.

import { useSignal } from '@preact/signals'
import { useAction } from '../../core/action.ts'
import { durationText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { addPasskey, hasPasskeys, type Passkey } from '../../core/passkeys.ts'
import { type LoadRequest, requestJson } from '../../core/request.ts'
import { leave, noticeEnd, session } from '../../core/session.ts'
import { ActionForm, BusyButton, Dialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { Card, Empty, Facts, Note, Page, ProblemNote, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { Foreign, Instant, Time } from '../../parts/text.tsx'

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
          verb="Log out"
          busyWord="Logging out …"
          onClick={() => void logOut.run()}
        />
      }
    >
      {logOut.problem !== null && <ProblemNote problem={logOut.problem} />}
      <div class="cards">
        <Card title="Session">
          <Facts
            rows={[
              ['Administrator', <Foreign text={value.actor} />],
              ['Role', value.role],
              ['Logged in by', value.by === 'link' ? 'a link' : 'a passkey'],
              ['Since', <Instant at={value.began_at} />],
              ['Ends', <Instant at={value.ends_at} />],
              ['Without a request', `after ${durationText(value.idle_s)}`],
            ]}
          />
        </Card>
      </div>
      <PasskeysCard why={value.passkeys.why} name={value.passkeys.rp_id} />
    </Page>
  )
}

/** `name`: the name of the console that a new one belongs to; null: none can be made here, and `why`. */
function PasskeysCard({ name, why }: { name: string | null; why: string | null }) {
  const load = (options: LoadRequest) =>
    requestJson<{ passkeys: readonly Passkey[] }>('/api/passkeys', options).catch(noticeEnd)
  const list = useLoaded('/api/passkeys', load)
  const open = useSignal<{ kind: 'add' } | { kind: 'remove'; passkey: Passkey } | null>(null)
  const close = () => {
    open.value = null
  }
  const changed = () => {
    close()
    list.reload()
  }
  const { value } = open
  return (
    <Card
      title="Passkeys"
      wide
      actions={
        name !== null &&
        hasPasskeys() && (
          <button type="button" onClick={() => (open.value = { kind: 'add' })}>
            New passkey
          </button>
        )
      }
    >
      {why !== null && (
        <Note>
          <p>{why}</p>
        </Note>
      )}
      <Shown of={list} what="passkeys">
        {({ passkeys }) =>
          passkeys.length === 0 ? (
            <Empty title="No passkey">
              <p>With one you log in without a link from the host.</p>
            </Empty>
          ) : (
            <Table
              label="Passkeys"
              columns={columnsOf(passkey => (open.value = { kind: 'remove', passkey }))}
              rows={passkeys}
              keyOf={({ id }) => id}
            />
          )
        }
      </Shown>
      {value?.kind === 'add' && name !== null && <AddDialog name={name} close={close} added={changed} />}
      {value?.kind === 'remove' && <RemoveDialog passkey={value.passkey} close={close} removed={changed} />}
    </Card>
  )
}

function columnsOf(remove: (passkey: Passkey) => void): readonly Column<Passkey>[] {
  return [
    { name: 'Passkey', cell: ({ name }) => <Foreign text={name} /> },
    { name: 'Last used', cell: row => <Time at={row.last_used_at} none="never" /> },
    { name: 'Made', isWide: true, cell: row => <Time at={row.created_at} /> },
    {
      name: 'Actions',
      cell: row => (
        <button type="button" class="quiet" aria-label={`Remove ${row.name}`} onClick={() => remove(row)}>
          Remove
        </button>
      ),
    },
  ]
}

function AddDialog({ name, close, added }: { name: string; close: () => void; added: () => void }) {
  const words = useSignal('')
  const add = useAction(() => addPasskey(words.value.trim()))
  const submit = async () => {
    if (await add.run()) added()
  }
  return (
    <Dialog title="New passkey" close={close}>
      <ActionForm
        action={add}
        submit={submit}
        verb="Make it"
        busyWord="Waiting for your device …"
        command={null}
        isReady={words.value.trim() !== ''}
        close={close}
      >
        <p>It belongs to {name} and to you, and asks for your fingerprint, face or PIN each time.</p>
        <TextField
          label="Name, to know it by"
          name="name"
          value={words.value}
          change={text => (words.value = text)}
          problem={add.problem}
        />
      </ActionForm>
    </Dialog>
  )
}

function RemoveDialog({ passkey, close, removed }: { passkey: Passkey; close: () => void; removed: () => void }) {
  const path = `/api/passkeys/${encodeURIComponent(passkey.id)}`
  const remove = useAction(() => requestJson(path, { method: 'DELETE' }).catch(noticeEnd))
  const submit = async () => {
    if (await remove.run()) removed()
  }
  return (
    <Dialog title="Remove a passkey" close={close}>
      <ActionForm
        action={remove}
        submit={submit}
        verb="Remove"
        busyWord="Removing …"
        tone="danger"
        command={null}
        close={close}
      >
        <p>
          <Foreign text={passkey.name} /> logs nobody in any more.
        </p>
      </ActionForm>
    </Dialog>
  )
}
