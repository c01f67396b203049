// Keys of the inference gateway: add or create with limits, models and a budget, list, change,
// revoke.

import { useSignal } from '@preact/signals'
import type { Static } from '@sinclair/typebox'
import type { AdminGatewayKey, AdminGatewayKeyCreated, AdminGatewayKeyList } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import type { LoadRequest } from '../../core/request.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { Card, Empty, Shown } from '../../parts/page.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { CommandLine, Foreign, StateMark, Time } from '../../parts/text.tsx'
import { TermsFields } from './gateway-key-fields.tsx'
import { bodyOf, changesOf, optionsOf, type Terms, termsOf } from './gateway-key-terms.ts'
import { tokensHeldText, usdHeldText } from './held.ts'
import { isKeyName, isRegistration, KeyName, NameField, RegistrationField } from './key-maker.tsx'
import { MadeKey, RevokeKey } from './keys.tsx'

type Open = { readonly kind: 'create' | 'add' } | { readonly kind: 'set' | 'revoke'; readonly key: AdminGatewayKey }

export function GatewayKeys({ slug, isLiving }: { slug: string; isLiving: boolean }) {
  const path = pathTo`/organizations/${slug}/gateway-keys`
  const load = (options: LoadRequest) => operate<Static<typeof AdminGatewayKeyList>>(path, options)
  const list = useLoaded(path, load, { topics: ['keys'] })
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
      title="Gateway keys"
      wide
      actions={
        isLiving &&
        may('POST /organizations/:slug/gateway-keys') && (
          <>
            <button type="button" onClick={() => (open.value = { kind: 'add' })}>
              Add a client's gateway key
            </button>
            <button type="button" onClick={() => (open.value = { kind: 'create' })}>
              New gateway key
            </button>
          </>
        )
      }
    >
      <CommandLine command={commandOf(['gateway', 'key', 'list', slug])} />
      <Shown of={list} what="gateway keys">
        {({ keys }) =>
          keys.length === 0 ? (
            <Empty title="No gateway keys yet">
              <p>The organization needs a gateway key to use models. Each instance gets its own key.</p>
            </Empty>
          ) : (
            <Table
              label="Gateway keys"
              columns={columnsOf(chosen => (open.value = chosen))}
              rows={keys}
              keyOf={({ prefix }) => prefix}
            />
          )
        }
      </Shown>
      {value?.kind === 'create' && <CreateGatewayKey slug={slug} close={close} created={list.reload} />}
      {value?.kind === 'add' && <AddGatewayKey slug={slug} close={close} added={changed} />}
      {value?.kind === 'set' && <SetGatewayKey of={value.key} close={close} changed={changed} />}
      {value?.kind === 'revoke' && (
        <RevokeKey kind="gateway" prefix={value.key.prefix} close={close} revoked={changed} />
      )}
    </Card>
  )
}

function columnsOf(open: (chosen: Open) => void): readonly Column<AdminGatewayKey>[] {
  return [
    { name: 'Key', cell: key => <KeyOf of={key} /> },
    { name: 'State', cell: key => <StateOf of={key} /> },
    { name: 'Models', cell: ({ models }) => <Foreign text={models?.join(', ') ?? null} none="all" /> },
    { name: 'Tokens this month', isNumber: true, cell: key => <TokensOf of={key} /> },
    { name: 'Cost', isNumber: true, cell: key => <CostOf of={key} /> },
    { name: 'Last used', cell: key => <Time at={key.last_used_at} none="never" /> },
    {
      name: 'Actions',
      isActions: true,
      cell: key =>
        key.state === 'active' && (
          <span class="row-actions">
            {may('POST /gateway-keys/:prefix/terms') && (
              <button
                type="button"
                class="quiet"
                aria-label={`Change gw_${key.prefix}`}
                onClick={() => open({ kind: 'set', key })}
              >
                Change
              </button>
            )}
            {may('POST /gateway-keys/:prefix/revoke') && (
              <button
                type="button"
                class="quiet"
                aria-label={`Revoke gw_${key.prefix}`}
                onClick={() => open({ kind: 'revoke', key })}
              >
                Revoke
              </button>
            )}
          </span>
        ),
    },
  ]
}

function KeyOf({ of }: { of: AdminGatewayKey }) {
  return (
    <>
      <KeyName tag="gw" of={of} />
      {of.instance !== null && <span class="hint"> for an instance</span>}
    </>
  )
}

function StateOf({ of: { state, expires_at: end } }: { of: AdminGatewayKey }) {
  return (
    <>
      <StateMark word={state} />
      {end !== null && <p class="hint">expires on {end.slice(0, 10)}</p>}
    </>
  )
}

function TokensOf({ of }: { of: AdminGatewayKey }) {
  const budget = of.budget_tokens === null ? '' : ` of ${countText(of.budget_tokens)}${tokensHeldText(of)}`
  return <>{countText(of.month_tokens) + budget}</>
}

function CostOf({ of }: { of: AdminGatewayKey }) {
  const budget = of.budget_usd === null ? '' : ` of ${usdText(of.budget_usd)}${usdHeldText(of)}`
  return <>{usdText(of.month_cost_usd) + budget}</>
}

function CreateGatewayKey({ slug, close, created }: { slug: string; close: () => void; created: () => void }) {
  const terms = useSignal<Terms>(termsOf(null))
  const name = useSignal('')
  const made = useSignal<AdminGatewayKeyCreated | null>(null)
  const namedBody = () => ({ ...bodyOf(terms.value), name: name.value || undefined })
  const create = useAction(async () => {
    const path = pathTo`/organizations/${slug}/gateway-keys`
    made.value = await operate<AdminGatewayKeyCreated>(path, { method: 'POST', body: namedBody() })
  })
  const command = commandOf(['gateway', 'key', 'create', slug], {
    name: name.value || null,
    ...optionsOf(terms.value, termsOf(null)),
  })
  return (
    <ActionDialog
      title={`New gateway key for ${slug}`}
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
      <TermsFields terms={terms.value} change={value => (terms.value = value)} problem={create.problem} />
    </ActionDialog>
  )
}

function AddGatewayKey({ slug, close, added }: { slug: string; close: () => void; added: () => void }) {
  const terms = useSignal<Terms>(termsOf(null))
  const name = useSignal('')
  const line = useSignal('')
  const add = useAction(async () => {
    const body = { ...bodyOf(terms.value), name: name.value || undefined, registration: line.value }
    await operate<AdminGatewayKey>(pathTo`/organizations/${slug}/gateway-keys/add`, { method: 'POST', body })
  })
  const isReady = isRegistration('gw', line.value) && isKeyName(name.value)
  const options = { name: name.value || null, ...optionsOf(terms.value, termsOf(null)) }
  const command = isReady ? commandOf(['gateway', 'key', 'add', slug, line.value], options) : null
  return (
    <ActionDialog
      title={`Add a client's gateway key to ${slug}`}
      action={add}
      done={added}
      verb="Add"
      busyWord="Adding …"
      {...{ command, isReady, close }}
    >
      <RegistrationField tag="gw" line={line.value} change={value => (line.value = value.trim())} />
      <NameField name={name.value} change={value => (name.value = value.trim())} />
      <TermsFields terms={terms.value} change={value => (terms.value = value)} problem={add.problem} />
    </ActionDialog>
  )
}

function SetGatewayKey({ of, close, changed }: { of: AdminGatewayKey; close: () => void; changed: () => void }) {
  const before = termsOf(of)
  const terms = useSignal<Terms>(before)
  const path = pathTo`/gateway-keys/${of.prefix}/terms`
  const set = useAction(() => operate(path, { method: 'POST', body: changesOf(terms.value, before) }))
  const command = commandOf(['gateway', 'key', 'set', of.prefix], optionsOf(terms.value, before))
  return (
    <ActionDialog
      title={`Change gw_${of.prefix}`}
      action={set}
      done={changed}
      verb="Save"
      busyWord="Saving …"
      command={command}
      close={close}
    >
      <TermsFields terms={terms.value} change={value => (terms.value = value)} problem={set.problem} />
    </ActionDialog>
  )
}
