// One organization: its state, budget, keys, usage and deletion.

import { useSignal } from '@preact/signals'
import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import { useAction } from '../../core/action.ts'
import { commandOf } from '../../core/command.ts'
import { countText, usdText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { ActionDialog } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { Card, Facts, Meter, Page, Shown } from '../../parts/page.tsx'
import { Instant, Link, StateMark } from '../../parts/text.tsx'
import { GatewayKeys } from './gateway-keys.tsx'
import { instancesText, tokensHeldText, usdHeldText } from './held.ts'
import { ApiKeys } from './keys.tsx'
import { budgetBody, budgetOptions, budgetsOf, ORGANIZATION_BUDGETS } from './organization-budget.ts'
import { DeleteOrganization } from './organization-deletion.tsx'
import { QuotasCard, QuotasDialog } from './quotas.tsx'
import { UsageCard } from './usage.tsx'

export function OrganizationPage({ slug }: { slug: string }) {
  const path = pathTo`/organizations/${slug}`
  const found = useLoaded(path, options => operate<AdminOrganization>(path, options), {
    topics: ['organizations', 'keys'],
  })
  const open = useSignal<'none' | 'budget' | 'quotas' | 'status' | 'delete'>('none')
  const close = () => {
    open.value = 'none'
  }
  const changed = () => {
    close()
    found.reload()
  }
  const { data } = found
  const isSuspended = data?.status === 'suspended'
  const isLiving = data?.status === 'active' || isSuspended
  const mayTurn = may(isSuspended ? 'POST /organizations/:slug/resume' : 'POST /organizations/:slug/suspend')
  return (
    <Page
      title={slug}
      lead={<Link href="/organizations">Organizations</Link>}
      command={commandOf(['org', 'show', slug])}
      actions={
        <>
          {isLiving && mayTurn && (
            <button type="button" onClick={() => (open.value = 'status')}>
              {isSuspended ? 'Resume' : 'Suspend'}
            </button>
          )}
          {data !== null && data.status !== 'deleted' && may('DELETE /organizations/:slug') && (
            <button type="button" class="danger" onClick={() => (open.value = 'delete')}>
              Delete
            </button>
          )}
        </>
      }
    >
      <Shown of={found} what="the organization">
        {organization => (
          <>
            <div class="cards">
              <Card title="State">
                <Facts
                  rows={[
                    ['Status', <StateMark word={organization.status} />],
                    ['Created', <Instant at={organization.created_at} />],
                    [
                      'Instances',
                      <Link href={`/instances?organization=${encodeURIComponent(slug)}`}>
                        {instancesText(organization)}
                      </Link>,
                    ],
                    ['API keys', `${countText(organization.keys_active)} active`],
                  ]}
                />
              </Card>
              <BudgetCard organization={organization} change={() => (open.value = 'budget')} />
              <QuotasCard organization={organization} change={() => (open.value = 'quotas')} />
            </div>
            <ApiKeys slug={slug} isLiving={isLiving} />
            <GatewayKeys slug={slug} isLiving={isLiving} />
            {may('GET /organizations/:slug/usage') && <UsageCard slug={slug} />}
            {open.value === 'budget' && <BudgetDialog organization={organization} close={close} changed={changed} />}
            {open.value === 'quotas' && <QuotasDialog organization={organization} close={close} changed={changed} />}
            {open.value === 'status' && <StatusDialog organization={organization} close={close} changed={changed} />}
            {open.value === 'delete' && <DeleteOrganization slug={slug} close={close} changed={changed} />}
          </>
        )}
      </Shown>
    </Page>
  )
}

function BudgetCard({ organization, change }: { organization: AdminOrganization; change: () => void }) {
  const { budget_usd: usd, budget_tokens: tokens, month_cost_usd: cost, month_tokens: used } = organization
  return (
    <Card
      title="Monthly budget"
      actions={
        may('POST /organizations/:slug/budget') &&
        organization.status !== 'deleted' && (
          <button type="button" onClick={change}>
            Change
          </button>
        )
      }
    >
      <Budget
        label="Cost"
        used={Number(cost)}
        total={usd === null ? null : Number(usd)}
        text={usdText(cost)}
        of={usd === null ? null : usdText(usd) + usdHeldText(organization)}
      />
      <Budget
        label="Tokens"
        used={used}
        total={tokens}
        text={countText(used)}
        of={tokens === null ? null : countText(tokens) + tokensHeldText(organization)}
      />
    </Card>
  )
}

export function Budget({
  label,
  used,
  total,
  text,
  of,
}: {
  label: string
  used: number
  total: number | null
  text: string
  of: string | null
}) {
  if (total === null || of === null) return <Facts rows={[[label, `${text}, no limit`]]} />
  return <Meter label={label} used={used} total={total} text={`${text} of ${of}`} />
}

type ChangeProps = {
  readonly organization: AdminOrganization
  readonly close: () => void
  readonly changed: () => void
}

function BudgetDialog({ organization, close, changed }: ChangeProps) {
  const { slug } = organization
  const typed = useSignal(budgetsOf(organization))
  const set = useAction(() => {
    const body = budgetBody(typed.value)
    return operate(pathTo`/organizations/${slug}/budget`, { method: 'POST', body })
  })
  const command = commandOf(['org', 'budget', slug], budgetOptions(typed.value))
  return (
    <ActionDialog
      title={`Budgets of ${slug}`}
      action={set}
      done={changed}
      verb="Save"
      busyWord="Saving …"
      command={command}
      close={close}
    >
      <p>
        Limits for all gateway keys of the organization together. Months, days and weeks (from Monday) are in UTC. No
        limit if empty.
      </p>
      {ORGANIZATION_BUDGETS.map(([name, label]) => (
        <TextField
          key={name}
          name={name}
          label={label}
          inputMode={name.endsWith('usd') ? 'decimal' : 'numeric'}
          value={typed.value[name]}
          change={value => (typed.value = { ...typed.value, [name]: value.trim() })}
          problem={set.problem}
        />
      ))}
    </ActionDialog>
  )
}

function StatusDialog({ organization: { slug, status }, close, changed }: ChangeProps) {
  const isSuspended = status === 'suspended'
  const word = isSuspended ? 'resume' : 'suspend'
  const turn = useAction(() => operate(`${pathTo`/organizations/${slug}`}/${word}`, { method: 'POST' }))
  return (
    <ActionDialog
      title={isSuspended ? `Resume ${slug}` : `Suspend ${slug}`}
      action={turn}
      done={changed}
      verb={isSuspended ? 'Resume' : 'Suspend'}
      busyWord={isSuspended ? 'Resuming …' : 'Suspending …'}
      tone={isSuspended ? 'primary' : 'danger'}
      command={commandOf(['org', word, slug])}
      close={close}
    >
      <p>
        {isSuspended
          ? 'The appliance accepts its keys again.'
          : 'The appliance rejects its keys until you resume it. Its instances keep running.'}
      </p>
    </ActionDialog>
  )
}
