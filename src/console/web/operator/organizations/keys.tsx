// API keys of an organization: add one that its client made, create, list, revoke. A minted key is
// shown once.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminKey, AdminKeyCreated, AdminKeyList } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Choice } from '../../parts/field.tsx'
import { Card, Empty, Note, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, CopyButton, StateMark, Time } from '../../parts/text.tsx'
import { isKeyName, isRegistration, KeyName, NameField, RegistrationField } from './key-maker.tsx'

type Scope = AdminKey['scope']

export function ApiKeys({ slug, isLiving }: { slug: string; isLiving: boolean }) {
  const path = pathTo`/organizations/${slug}/keys`
  const list = useLoaded(path, options => operate<Static<typeof AdminKeyList>>(path, options), { topics: ['keys'] })
  const isCreating = useSignal(false)
  const isAdding = useSignal(false)
  const revoked = useSignal<string | null>(null)
  return (
    <Card
      title="API keys"
      wide
      actions={
        isLiving &&
        may('POST /organizations/:slug/keys') && (
          <>
            <button type="button" onClick={() => (isAdding.value = true)}>
              Add a client's API key
            </button>
            <button type="button" onClick={() => (isCreating.value = true)}>
              New API key
            </button>
          </>
        )
      }
    >
      <CommandLine command={commandOf(['key', 'list', slug])} />
      <Shown of={list} what="keys">
        {({ keys }) =>
          keys.length === 0 ? (
            <Empty title="No API keys yet">
              <p>The organization needs an API key to create instances and submit builds.</p>
            </Empty>
          ) : (
            <Table
              label="API keys"
              columns={columnsOf(prefix => (revoked.value = prefix))}
              rows={keys}
              keyOf={({ prefix }) => prefix}
            />
          )
        }
      </Shown>
      {isCreating.value && <CreateKey slug={slug} close={() => (isCreating.value = false)} created={list.reload} />}
      {isAdding.value && (
        <AddKey
          slug={slug}
          close={() => (isAdding.value = false)}
          added={() => {
            isAdding.value = false
            list.reload()
          }}
        />
      )}
      {revoked.value !== null && (
        <RevokeKey
          kind="api"
          prefix={revoked.value}
          close={() => (revoked.value = null)}
          revoked={() => {
            revoked.value = null
            list.reload()
          }}
        />
      )}
    </Card>
  )
}

function columnsOf(revoke: (prefix: string) => void): readonly Column<AdminKey>[] {
  return [
    { name: 'Key', cell: key => <KeyName tag="ca" of={key} /> },
    { name: 'Scope', cell: ({ scope }) => scope },
    { name: 'State', cell: key => <StateMark word={key.revoked_at === null ? 'active' : 'revoked'} /> },
    { name: 'Last used', cell: key => <Time at={key.last_used_at} none="never" /> },
    { name: 'Created', cell: key => <Time at={key.created_at} /> },
    {
      name: 'Actions',
      isActions: true,
      cell: ({ prefix, revoked_at }) =>
        revoked_at === null &&
        may('POST /keys/:prefix/revoke') && (
          <button type="button" class="quiet" aria-label={`Revoke ca_${prefix}`} onClick={() => revoke(prefix)}>
            Revoke
          </button>
        ),
    },
  ]
}

function CreateKey({ slug, close, created }: { slug: string; close: () => void; created: () => void }) {
  const scope = useSignal<Scope>('write')
  const name = useSignal('')
  const made = useSignal<AdminKeyCreated | null>(null)
  const create = useAction(async () => {
    const body = { scope: scope.value, name: name.value || undefined }
    made.value = await operate<AdminKeyCreated>(pathTo`/organizations/${slug}/keys`, { method: 'POST', body })
  })
  const command = commandOf(['key', 'create', slug], optionsOf(scope.value, name.value))
  return (
    <ActionDialog
      title={`New API key for ${slug}`}
      instead={made.value !== null && <MadeKey value={made.value.key} close={close} />}
      action={create}
      done={created}
      verb="Create"
      busyWord="Creating …"
      command={command}
      isReady={isKeyName(name.value)}
      close={close}
    >
      <p>This host sees the key and could use it. To prevent that, let the client create the key and add it here.</p>
      <NameField name={name.value} change={value => (name.value = value.trim())} />
      <ScopeField scope={scope.value} change={value => (scope.value = value)} />
    </ActionDialog>
  )
}

function optionsOf(scope: Scope, name: string) {
  return { name: name === '' ? null : name, scope: scope === 'write' ? null : scope }
}

function ScopeField({ scope, change }: { scope: Scope; change: (scope: Scope) => void }) {
  return (
    <Choice
      label="Scope"
      value={scope}
      change={change}
      options={[
        ['write', 'Write: create and delete'],
        ['read', 'Read: no changes'],
      ]}
    />
  )
}

function AddKey({ slug, close, added }: { slug: string; close: () => void; added: () => void }) {
  const scope = useSignal<Scope>('write')
  const name = useSignal('')
  const line = useSignal('')
  const add = useAction(async () => {
    const body = { registration: line.value, scope: scope.value, name: name.value || undefined }
    await operate<AdminKey>(pathTo`/organizations/${slug}/keys/add`, { method: 'POST', body })
  })
  const isReady = isRegistration('ca', line.value) && isKeyName(name.value)
  const options = optionsOf(scope.value, name.value)
  const command = isReady ? commandOf(['key', 'add', slug, line.value], options) : null
  return (
    <ActionDialog
      title={`Add a client's API key to ${slug}`}
      action={add}
      done={added}
      verb="Add"
      busyWord="Adding …"
      {...{ command, isReady, close }}
    >
      <RegistrationField tag="ca" line={line.value} change={value => (line.value = value.trim())} />
      <NameField name={name.value} change={value => (name.value = value.trim())} />
      <ScopeField scope={scope.value} change={value => (scope.value = value)} />
    </ActionDialog>
  )
}

/** Shows a key in full, the only time that this is possible. */
export function MadeKey({ value, close }: { value: string; close: () => void }) {
  return (
    <div class="dialog-form">
      <Note tone="warn">
        <p>Copy the key now. The appliance does not store it and cannot show it again.</p>
      </Note>
      <div class="command secret">
        <code>{value}</code>
        <CopyButton text={value} what="the key" />
      </div>
      <div class="dialog-foot">
        <button type="button" class="primary" onClick={close}>
          Done
        </button>
      </div>
    </div>
  )
}

const KINDS = {
  api: { mark: 'ca', route: 'keys', words: ['key'] },
  gateway: { mark: 'gw', route: 'gateway-keys', words: ['gateway', 'key'] },
} as const

export function RevokeKey({
  kind,
  prefix,
  close,
  revoked,
}: {
  kind: keyof typeof KINDS
  prefix: string
  close: () => void
  revoked: () => void
}) {
  const { mark, route, words } = KINDS[kind]
  const revoke = useAction(() => operate(`/${route}/${encodeURIComponent(prefix)}/revoke`, { method: 'POST' }))
  return (
    <ActionDialog
      title={`Revoke ${mark}_${prefix}`}
      action={revoke}
      done={revoked}
      verb="Revoke permanently"
      busyWord="Revoking …"
      tone="danger"
      command={commandOf([...words, 'revoke', prefix])}
      close={close}
    >
      <p>The appliance rejects requests with this key from now on. You cannot undo this.</p>
    </ActionDialog>
  )
}
