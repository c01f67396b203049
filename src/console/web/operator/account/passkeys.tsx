// Passkeys of the console: those of the person, and of others if the role may see them. Creates and removes them.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminPasskey, AdminPasskeyList } from '../../../../contract/admin/console.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { useLoaded } from '../../core/loaded.ts'
import { addPasskey, hasPasskeys } from '../../core/passkeys.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { Card, Empty, Note, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Foreign, Time } from '../../parts/text.tsx'

type Open = { readonly kind: 'add' } | { readonly kind: 'remove'; readonly passkey: AdminPasskey }

/**
 * `name`: the console's name to which a new passkey would belong; null if none can be created here, for the reason
 * `why`.
 */
export function PasskeysCard({ name, why }: { name: string | null; why: string | null }) {
  const path = '/console/passkeys'
  const list = useLoaded(path, options => operate<Static<typeof AdminPasskeyList>>(path, options))
  const open = useSignal<Open | null>(null)
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
      <CommandLine command="strongroom console passkey list" />
      {why !== null && (
        <Note>
          <p>{why}</p>
        </Note>
      )}
      <Shown of={list} what="passkeys">
        {({ passkeys }) =>
          passkeys.length === 0 ? (
            <Empty title="No passkeys">
              <p>With a passkey you sign in without a link from the host.</p>
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

function columnsOf(remove: (passkey: AdminPasskey) => void): readonly Column<AdminPasskey>[] {
  return [
    { name: 'Passkey', cell: ({ name }) => <Foreign text={name} /> },
    { name: 'Administrator', cell: ({ actor, own }) => <Foreign text={own ? `${actor} (you)` : actor} /> },
    { name: 'Role', cell: ({ role }) => role },
    { name: 'Console name', cell: ({ rp_id }) => <Foreign text={rp_id} /> },
    { name: 'Last used', cell: row => <Time at={row.last_used_at} none="never" /> },
    { name: 'Created', cell: row => <Time at={row.created_at} /> },
    {
      name: 'Actions',
      isActions: true,
      cell: row =>
        may('DELETE /console/passkeys/:id') && (
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
  return (
    <ActionDialog
      title="New passkey"
      action={add}
      done={added}
      verb="Create"
      busyWord="Waiting for your device …"
      command={null}
      isReady={words.value.trim() !== ''}
      close={close}
    >
      <p>The passkey works for {name}. Your device asks for your fingerprint, face or PIN each time.</p>
      <TextField
        label="Name"
        name="name"
        value={words.value}
        change={text => (words.value = text)}
        problem={add.problem}
      />
    </ActionDialog>
  )
}

function RemoveDialog({ passkey, close, removed }: { passkey: AdminPasskey; close: () => void; removed: () => void }) {
  const remove = useAction(() => operate(pathTo`/console/passkeys/${passkey.id}`, { method: 'DELETE' }))
  return (
    <ActionDialog
      title="Remove a passkey"
      action={remove}
      done={removed}
      verb="Remove permanently"
      busyWord="Removing …"
      tone="danger"
      command={commandOf(['console', 'passkey', 'remove', passkey.id])}
      close={close}
    >
      <p>
        <Foreign text={passkey.name} /> can no longer sign in. Its sessions end now.
      </p>
    </ActionDialog>
  )
}
