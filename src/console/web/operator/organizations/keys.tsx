// API keys of an organization: create, list, revoke. A new key is shown once.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminKey, AdminKeyCreated, AdminKeyList } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { ActionForm, Dialog } from '../../parts/dialog.tsx'
import { Choice } from '../../parts/field.tsx'
import { Card, Empty, Note, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, CopyButton, StateMark, Time } from '../../parts/text.tsx'

type Scope = AdminKey['scope']

export function ApiKeys({ slug, isLiving }: { slug: string; isLiving: boolean }) {
  const path = pathTo`/organizations/${slug}/keys`
  const list = useLoaded(path, options => operate<Static<typeof AdminKeyList>>(path, options), { topics: ['keys'] })
  const isCreating = useSignal(false)
  const revoked = useSignal<string | null>(null)
  return (
    <Card
      title="API keys"
      wide
      actions={
        isLiving &&
        may('POST /organizations/:slug/keys') && (
          <button type="button" onClick={() => (isCreating.value = true)}>
            New API key
          </button>
        )
      }
    >
      <CommandLine command={commandOf(['key', 'list', slug])} />
      <Shown of={list} what="keys">
        {({ keys }) =>
          keys.length === 0 ? (
            <Empty title="No API key yet">
              <p>With one the organization creates instances and submits builds.</p>
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
    { name: 'Key', cell: ({ prefix }) => <code>ca_{prefix}_…</code> },
    { name: 'Scope', cell: ({ scope }) => scope },
    { name: 'State', cell: key => <StateMark word={key.revoked_at === null ? 'active' : 'revoked'} /> },
    { name: 'Last used', isWide: true, cell: key => <Time at={key.last_used_at} none="never" /> },
    { name: 'Created', isWide: true, cell: key => <Time at={key.created_at} /> },
    {
      name: 'Actions',
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
  const made = useSignal<AdminKeyCreated | null>(null)
  const create = useAction(async () => {
    const body = { scope: scope.value }
    made.value = await operate<AdminKeyCreated>(pathTo`/organizations/${slug}/keys`, { method: 'POST', body })
  })
  const submit = async () => {
    if (await create.run()) created()
  }
  const command = commandOf(['key', 'create', slug], { scope: scope.value === 'write' ? null : scope.value })
  return (
    <Dialog title={`New API key of ${slug}`} close={close}>
      {made.value === null ? (
        <ActionForm action={create} submit={submit} verb="Create" busyWord="Creating …" command={command} close={close}>
          <Choice
            label="Scope"
            value={scope.value}
            change={value => (scope.value = value)}
            options={[
              ['write', 'write: may create and delete'],
              ['read', 'read: cannot change anything'],
            ]}
          />
        </ActionForm>
      ) : (
        <MadeKey value={made.value.key} close={close} />
      )}
    </Dialog>
  )
}

/** A key in full, the only time that it is shown. */
export function MadeKey({ value, close }: { value: string; close: () => void }) {
  return (
    <div class="dialog-form">
      <Note tone="warn">
        <p>The key is shown now and never again. Nothing here keeps it.</p>
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
  const submit = async () => {
    if (await revoke.run()) revoked()
  }
  return (
    <Dialog title={`Revoke ${mark}_${prefix}`} close={close}>
      <ActionForm
        action={revoke}
        submit={submit}
        verb="Revoke for good"
        busyWord="Revoking …"
        tone="danger"
        command={commandOf([...words, 'revoke', prefix])}
        close={close}
      >
        <p>Requests with this key are refused from now on. A revoked key cannot come back.</p>
      </ActionForm>
    </Dialog>
  )
}
